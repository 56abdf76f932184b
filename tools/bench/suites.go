package main

// suite is one benchmark function.
type suite struct {
	pkg, bench string
	rounds     int
	rows       []row

	binary string
	load   [2]string // before and after
	got    map[string]float64
}

// row is one line of the table. Without a bar the line is there to be seen.
type row struct {
	what   string
	ours   string // metric; its unit is what follows the last "-"
	theirs string // metric, or empty
	ratio  string // metric that is held against the bar; empty: ours is
	bar    float64
	least  bool // the bar is a lower bound
}

// suites is what docs/benchmarks.md is about.
var suites = []suite{
	{pkg: "cmd/netsandbox", bench: "BenchmarkExec$", rounds: 60, rows: []row{
		{what: "exec of /bin/true in a live view, against bubblewrap", ours: "exec-ms", theirs: "bwrap-ms", ratio: "exec/bwrap", bar: 1.0},
		{what: "the same, against unshare -mpnf", ours: "exec-ms", theirs: "unshare-ms", ratio: "exec/unshare"},
		{what: "exec when the view is built again, against bubblewrap", ours: "rebuild-ms", theirs: "bwrap-ms", ratio: "rebuild/bwrap", bar: 3.5},
		{what: "one canary view, against bubblewrap", ours: "canary-ms", theirs: "bwrap-ms", ratio: "canary/bwrap", bar: 3},
		{what: "memory of one idle environment alone, all its processes (PSS)", ours: "idle-MB", bar: 15},
		{what: "of that, what is not the program's file", ours: "idle-private-MB"},
	}},
	{pkg: "cmd/netsandbox", bench: "BenchmarkMany$", rounds: 1, rows: []row{
		{what: "memory of each of ten idle environments (PSS)", ours: "each-MB", bar: 15},
		{what: "creating an environment", ours: "create-ms"},
	}},
	{pkg: "workflow/txn", bench: "BenchmarkApply/1000$", rounds: 15, rows: files("1 000")},
	{pkg: "workflow/txn", bench: "BenchmarkApply/10000$", rounds: 5, rows: files("10 000")},
	{pkg: "cmd/netsandbox", bench: "BenchmarkApply$", rounds: 5, rows: []row{
		{what: "`netsandbox apply` of 1 000 files, against cp -a and sync -f", ours: "apply-ms", theirs: "cp+sync-ms", ratio: "apply/cp+sync"},
		{what: "`netsandbox rollback` of it, against the apply", ours: "rollback-ms", theirs: "apply-ms", ratio: "rollback/apply", bar: 0.5},
	}},
	{pkg: "backends/internal/upper", bench: "BenchmarkDiff$", rounds: 5, rows: []row{
		{what: "difference of 10 000 changed files, against 1 000", ours: "first-10k-ms", theirs: "first-1k-ms", ratio: "first-10k/first-1k", bar: 12},
		{what: "of 1 000 with a large host below, against a small one", ours: "first-1k-large-ms", theirs: "first-1k-ms", ratio: "first-1k-large/first-1k", bar: 1.2},
		{what: "the same with origins recorded", ours: "again-1k-large-ms", theirs: "again-1k-ms", ratio: "again-1k-large/again-1k", bar: 1.2},
	}},
	{pkg: "cmd/netsandbox", bench: "BenchmarkTrial$", rounds: 10, rows: []row{
		{what: "outage of a trial that cuts a circuit, seen from outside", ours: "outage-ms", bar: 2000},
		{what: "the same as the program reports it", ours: "reported-ms"},
		{what: "applier killed until the host is as before", ours: "undo-ms", bar: 2000},
	}},
	{pkg: "backends/internal/nettwin", bench: "BenchmarkTwin$", rounds: 5, rows: []row{
		{what: "download through the twin, 1 flow, against slirp4netns", ours: "twin-d1-MB/s", theirs: "slirp-d1-MB/s", ratio: "twin-d1/slirp-d1", bar: 2.5, least: true},
		{what: "10 flows", ours: "twin-d10-MB/s", theirs: "slirp-d10-MB/s", ratio: "twin-d10/slirp-d10", bar: 2.5, least: true},
		{what: "upload, 1 flow", ours: "twin-u1-MB/s", theirs: "slirp-u1-MB/s", ratio: "twin-u1/slirp-u1", bar: 2.5, least: true},
		{what: "10 flows", ours: "twin-u10-MB/s", theirs: "slirp-u10-MB/s", ratio: "twin-u10/slirp-u10", bar: 2.5, least: true},
		{what: "download directly, 1 flow and 10", ours: "direct-d1-MB/s", theirs: "direct-d10-MB/s"},
		{what: "upload directly, 1 flow and 10", ours: "direct-u1-MB/s", theirs: "direct-u10-MB/s"},
		{what: "processor time of the relay, download, 1 flow", ours: "twin-d1-s/GB", theirs: "slirp-d1-s/GB"},
		{what: "upload, 1 flow", ours: "twin-u1-s/GB", theirs: "slirp-u1-s/GB"},
		{what: "connecting through the twin, against the host itself", ours: "twin-connect-ms", theirs: "direct-connect-ms", ratio: "twin-connect/direct-connect"},
		{what: "the difference", ours: "connect-extra-ms", bar: 0.7},
	}},
}

// files are the rows of a transaction of n files.
func files(n string) []row {
	return []row{
		{what: "transaction of " + n + " files, against cp -a and sync -f", ours: "apply-ms", theirs: "cp+sync-ms", ratio: "apply/cp+sync", bar: 1.0},
		{what: "the same, against a copy first, then cp -a and sync -f", ours: "apply-ms", theirs: "backup+cp+sync-ms", ratio: "apply/backup+cp+sync"},
		{what: "the same, against rsync -a and sync -f", ours: "apply-ms", theirs: "rsync+sync-ms", ratio: "apply/rsync+sync"},
		{what: "undo of it, against the apply", ours: "undo-ms", theirs: "apply-ms", ratio: "undo/apply", bar: 0.5},
	}
}
