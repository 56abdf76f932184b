package guards

import (
	"time"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

// observe makes a circuit's latest observation so.
func observe(d circuit.Definition, r circuit.Result, reason string) func(*Facts) {
	return func(f *Facts) { f.Observations[d.ID] = seen(d, r, reason) }
}

// one is the refusal of one circuit.
func one(subject, fix string) *Refusal {
	return &Refusal{Reason: "a required circuit does not hold", Subjects: []string{subject}, Fix: fix}
}

var circuitsPreservedRows = []row{
	{name: "all preserved"},
	{name: "a repair holds", make: observe(api, circuit.New, "failed before")},
	{name: "slower holds", make: observe(api, circuit.Degraded, "")},
	{name: "insensitive holds; that it proves nothing is another guard's", make: observe(api, circuit.Insensitive, "")},
	{
		name: "lost: repair the change",
		make: observe(api, circuit.Lost, "connection refused"),
		want: one("circuit api is lost (connection refused, 3s ago)", "netsandbox exec web -- COMMAND"),
	},
	{
		name: "lost without a reason",
		make: observe(api, circuit.Lost, ""),
		want: one("circuit api is lost", "netsandbox exec web -- COMMAND"),
	},
	{
		name: "lost is recorded and let pass under --on-failure warn",
		make: func(f *Facts) { f.Warn = true; observe(api, circuit.Lost, "")(f) },
	},
	{
		name: "--on-failure warn excuses nothing but lost",
		make: func(f *Facts) { f.Warn = true; observe(lan, circuit.Unverifiable, "no route")(f) },
		want: one("circuit lan is unverifiable (no route, 3s ago)", "netsandbox circuit ignore web CIRCUIT"),
	},
	{
		name: "ignored by result but required by definition",
		make: observe(lan, circuit.Ignored, ""),
		want: one("circuit lan is ignored", "netsandbox check web"),
	},
	{
		name: "never observed",
		make: func(f *Facts) { delete(f.Observations, lan.ID) },
		want: one("circuit lan is pending", "netsandbox check web"),
	},
	{
		name: "pending",
		make: observe(lan, circuit.Pending, ""),
		want: one("circuit lan is pending", "netsandbox check web"),
	},
	{
		name: "observed on another layer",
		make: func(f *Facts) { f.Layer.Digest = "sha256:other"; f.Circuits = f.Circuits[:1] },
		want: one("circuit api was checked on another layer", "netsandbox check web"),
	},
	{
		name: "old evidence of this layer still says preserved",
		make: func(f *Facts) { f.Now += time.Hour },
	},
	{
		name: "a circuit that is not required may be lost",
		make: func(f *Facts) {
			observe(lan, circuit.Lost, "")(f)
			f.Circuits = []circuit.Definition{api, {ID: lan.ID, Label: "lan", Kind: circuit.TCP}}
		},
	},
	{
		name: "inbound without a paired client",
		make: func(f *Facts) {
			f.Circuits = append(f.Circuits, ssh)
			observe(ssh, circuit.Unverifiable, "the client is elsewhere")(f)
		},
		want: one("circuit ssh is unverifiable (the client is elsewhere, 3s ago)", "netsandbox circuit ignore web CIRCUIT"),
	},
	{
		name: "inbound is settled by a confirmation later",
		make: func(f *Facts) {
			f.Circuits, f.ConfirmWithin = append(f.Circuits, ssh), true
			observe(ssh, circuit.Unverifiable, "")(f)
		},
	},
	{
		name: "a confirmation settles inbound only",
		make: func(f *Facts) { f.ConfirmWithin = true; observe(lan, circuit.Unverifiable, "")(f) },
		want: one("circuit lan is unverifiable", "netsandbox circuit ignore web CIRCUIT"),
	},
	{
		name: "a confirmation does not settle a lost inbound",
		make: func(f *Facts) {
			f.Circuits, f.ConfirmWithin = append(f.Circuits, ssh), true
			observe(ssh, circuit.Lost, "")(f)
		},
		want: one("circuit ssh is lost", "netsandbox exec web -- COMMAND"),
	},
	{
		name: "several: the fix is for the lost one",
		make: func(f *Facts) { delete(f.Observations, api.ID); observe(lan, circuit.Lost, "timed out")(f) },
		want: &Refusal{
			Reason:   "2 required circuits do not hold",
			Subjects: []string{"circuit api is pending", "circuit lan is lost (timed out, 3s ago)"},
			Fix:      "netsandbox exec web -- COMMAND",
		},
	},
	{
		name: "several: what is not lost does not hide the lost one before it",
		make: func(f *Facts) { observe(api, circuit.Lost, "")(f); observe(lan, circuit.Unverifiable, "")(f) },
		want: &Refusal{
			Reason:   "2 required circuits do not hold",
			Subjects: []string{"circuit api is lost", "circuit lan is unverifiable"},
			Fix:      "netsandbox exec web -- COMMAND",
		},
	},
	{
		name: "a loss seen before the last boot says so",
		make: func(f *Facts) { f.BootID = reboot; observe(api, circuit.Lost, "refused")(f) },
		want: one("circuit api is lost (refused, before the last boot)", "netsandbox exec web -- COMMAND"),
	},
}

var circuitsFreshRows = []row{
	{name: "seen three seconds ago"},
	{name: "seen at the edge of the window", make: aged(circuit.Window)},
	{
		name: "seen just outside the window",
		make: aged(circuit.Window + time.Second),
		want: one("circuit api is stale (61s ago)", "netsandbox check web"),
	},
	{
		name: "seen before the last boot",
		make: func(f *Facts) { f.BootID, f.Circuits = reboot, f.Circuits[:1] },
		want: one("circuit api is stale (before the last boot)", "netsandbox check web"),
	},
	{
		name: "seen in the future of this boot",
		make: aged(-time.Second),
		want: one("circuit api is stale (before the last boot)", "netsandbox check web"),
	},
	{
		name: "fresh and lost",
		make: observe(api, circuit.Lost, "connection refused"),
		want: one("circuit api is lost (connection refused, 3s ago)", "netsandbox exec web -- COMMAND"),
	},
}

// aged leaves one required circuit, seen that long ago.
func aged(d time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Circuits = f.Circuits[:1]
		o := f.Observations[api.ID]
		o.Boottime = f.Now - d
		f.Observations[api.ID] = o
	}
}

func noCanary(subjects ...string) *Refusal {
	return &Refusal{
		Reason: "no required application canary vouches for the change", Subjects: subjects,
		Fix: "netsandbox circuit add web LABEL -- COMMAND",
	}
}

var canaryPresentRows = []row{
	{name: "a required canary held"},
	{name: "a repair vouches too", make: observe(api, circuit.New, "")},
	{
		name: "reachability is not enough",
		make: func(f *Facts) { f.Circuits = []circuit.Definition{lan} },
		want: noCanary(),
	},
	{
		name: "a canary that nobody requires",
		make: func(f *Facts) { f.Circuits[0].Required = false },
		want: noCanary(),
	},
	{
		name: "a canary that was never run",
		make: func(f *Facts) { delete(f.Observations, api.ID) },
		want: noCanary(),
	},
	{
		name: "a canary that cannot notice",
		make: observe(api, circuit.Insensitive, ""),
		want: noCanary("circuit api passes with the way out cut"),
	},
	{name: "a lost canary", make: observe(api, circuit.Lost, ""), want: noCanary()},
	{
		name: "a lost canary under --on-failure warn did notice",
		make: func(f *Facts) { f.Warn = true; observe(api, circuit.Lost, "")(f) },
	},
	{
		name: "--on-failure warn excuses nothing but lost",
		make: func(f *Facts) { f.Warn = true; observe(api, circuit.Unverifiable, "")(f) },
		want: noCanary(),
	},
	{
		name: "files below a base of one's own need none",
		make: func(f *Facts) { f.Circuits, f.Layer.BelowRoot = nil, true },
	},
	{
		name: "more than files below a base of one's own",
		make: func(f *Facts) { f.Circuits, f.Layer.BelowRoot, f.Layer.FilesOnly = nil, true, false },
		want: noCanary(),
	},
	{
		name: "only files of the host itself",
		make: func(f *Facts) { f.Circuits = nil },
		want: noCanary(),
	},
}
