package main

import "slices"

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
	{pkg: "workflow/txn", bench: "BenchmarkApply$", rounds: 7, rows: append(append(
		files("1 000", "1k"), files("10 000", "10k")...),
		row{what: "transaction of 10 000 files, against 1 000", ours: "apply-10k-ms", theirs: "apply-1k-ms", ratio: "apply-10k/apply-1k", bar: 12},
		row{what: "undo of it, against 1 000", ours: "undo-10k-ms", theirs: "undo-1k-ms", ratio: "undo-10k/undo-1k", bar: 12},
		row{what: "for comparison, cp -a and sync -f of 10 000, against 1 000", ours: "cp+sync-10k-ms", theirs: "cp+sync-1k-ms", ratio: "cp+sync-10k/cp+sync-1k"},
	)},
	{pkg: "cmd/netsandbox", bench: "BenchmarkApply$", rounds: 4, rows: []row{
		{what: "`netsandbox apply` of 1 000 files, against cp -a and sync -f", ours: "apply-1k-ms", theirs: "cp+sync-1k-ms", ratio: "apply-1k/cp+sync-1k"},
		{what: "`netsandbox rollback` of it, against the apply", ours: "rollback-1k-ms", theirs: "apply-1k-ms", ratio: "rollback-1k/apply-1k", bar: 0.5},
		{what: "`netsandbox apply` of 10 000 files, against cp -a and sync -f", ours: "apply-10k-ms", theirs: "cp+sync-10k-ms", ratio: "apply-10k/cp+sync-10k"},
		{what: "`netsandbox rollback` of it, against the apply", ours: "rollback-10k-ms", theirs: "apply-10k-ms", ratio: "rollback-10k/apply-10k", bar: 0.5},
		{what: "`netsandbox apply` of 10 000 files, against 1 000", ours: "apply-10k-ms", theirs: "apply-1k-ms", ratio: "apply-10k/apply-1k", bar: 12},
		{what: "`netsandbox check` and `plan` of 10 000 files, against 1 000", ours: "plan-10k-ms", theirs: "plan-1k-ms", ratio: "plan-10k/plan-1k", bar: 12},
		{what: "`netsandbox rollback` of 10 000 files, against 1 000", ours: "rollback-10k-ms", theirs: "rollback-1k-ms", ratio: "rollback-10k/rollback-1k", bar: 12},
	}},
	{pkg: "backends/internal/upper", bench: "BenchmarkDiff$", rounds: 5, rows: []row{
		{what: "difference of 10 000 changed files, against 1 000", ours: "first-10k-ms", theirs: "first-1k-ms", ratio: "first-10k/first-1k", bar: 12},
		{what: "of 1 000 with a large host below, against a small one", ours: "first-1k-large-ms", theirs: "first-1k-ms", ratio: "first-1k-large/first-1k", bar: 1.2},
		{what: "the same in processor time", ours: "first-1k-large-cpu-ms", theirs: "first-1k-cpu-ms", ratio: "first-1k-large-cpu/first-1k-cpu", bar: 1.2},
		{what: "the same with origins recorded", ours: "again-1k-large-ms", theirs: "again-1k-ms", ratio: "again-1k-large/again-1k", bar: 1.2},
		{what: "the same in processor time", ours: "again-1k-large-cpu-ms", theirs: "again-1k-cpu-ms", ratio: "again-1k-large-cpu/again-1k-cpu", bar: 1.2},
	}},
	{pkg: "cmd/netsandbox", bench: "BenchmarkTrial$", rounds: 10, rows: []row{
		{what: "outage of a trial that cuts a circuit, seen from outside", ours: "outage-ms", bar: 2000},
		{what: "the same as the program reports it", ours: "reported-ms"},
		{what: "applier killed until the host is as before", ours: "undo-ms", bar: 2000},
	}},
	{pkg: "backends/internal/nettwin", bench: "BenchmarkTwin$", rounds: 5, rows: slices.Concat(
		streams("1", "download through the twin, 1 flow", "upload, 1 flow", 2.5),
		streams("10", "download, 10 flows", "upload, 10 flows", 2.5),
		streams("100", "download, 100 flows", "upload, 100 flows", 0),
		streams("1v6", "download, 1 flow, IPv6", "upload, 1 flow, IPv6", 0),
		[]row{
			{what: "download directly, 1 flow and 100", ours: "direct-d1-MB/s", theirs: "direct-d100-MB/s"},
			{what: "upload directly, 1 flow and 100", ours: "direct-u1-MB/s", theirs: "direct-u100-MB/s"},
			{what: "processor time of the relay, download, 1 flow", ours: "twin-d1-s/GB", theirs: "slirp-d1-s/GB"},
			{what: "upload, 1 flow", ours: "twin-u1-s/GB", theirs: "slirp-u1-s/GB"},
			{what: "connecting through the twin, against the host itself", ours: "twin-connect-ms", theirs: "direct-connect-ms", ratio: "twin-connect/direct-connect"},
			{what: "connecting through slirp4netns", ours: "slirp-connect-ms", theirs: "direct-connect-ms"},
			{what: "the difference that the twin makes", ours: "connect-extra-ms", bar: 0.7},
			{what: "most memory of the relay during all of it", ours: "relay-peak-MB", theirs: "slirp-peak-MB", bar: 130},
			{what: "frames that the rings of the twin's links dropped", ours: "ring-drops", bar: 0.5},
		},
	)},
	{pkg: "backends/internal/nettwin", bench: "BenchmarkMirror$", rounds: 5, rows: []row{
		{what: "a twin of 10 000 routes and 10 000 nftables rules", ours: "large-ms", bar: 2000},
		{what: "a twin of a host with two uplinks and little else", ours: "small-ms"},
		{what: "what was changed in the large one", ours: "large-difference-ms"},
	}},
}

// streams are the rows of some flows, both ways, against slirp4netns.
func streams(flows, down, up string, bar float64) []row {
	way := func(what, dir string) row {
		key := dir + flows
		return row{
			what: what + ", against slirp4netns", ours: "twin-" + key + "-MB/s", theirs: "slirp-" + key + "-MB/s",
			ratio: "twin-" + key + "/slirp-" + key, bar: bar, least: true,
		}
	}
	return []row{way(down, "d"), way(up, "u")}
}

// files are the rows of a transaction of n files, whose metrics end with size.
func files(n, size string) []row {
	apply, undo := "apply-"+size, "undo-"+size
	against := func(what, other string, bar float64) row {
		other += "-" + size
		return row{what: what, ours: apply + "-ms", theirs: other + "-ms", ratio: apply + "/" + other, bar: bar}
	}
	return []row{
		against("transaction of "+n+" files, against cp -a and sync -f", "cp+sync", 1),
		against("the same, against a copy first, then cp -a and sync -f", "backup+cp+sync", 0),
		{
			what: "the same in processor time", ours: apply + "-cpu-ms", theirs: "backup+cp+sync-" + size + "-cpu-ms",
			ratio: apply + "-cpu/backup+cp+sync-" + size + "-cpu",
		},
		against("the same, against rsync -a and sync -f", "rsync+sync", 0),
		{what: "undo of it, against the apply", ours: undo + "-ms", theirs: apply + "-ms", ratio: undo + "/" + apply, bar: 0.5},
	}
}
