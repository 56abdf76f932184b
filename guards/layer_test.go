package guards

import (
	"slices"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

var changesPresentRows = []row{
	{name: "a change is enough"},
	{
		name: "a layer that was not read proves nothing",
		make: func(f *Facts) { f.Layer = Layer{} },
		want: &Refusal{Reason: "the layer was not read", Fix: "netsandbox changes web"},
	},
	{
		name: "an empty layer",
		make: func(f *Facts) { f.Layer.Changes = 0 },
		want: &Refusal{Reason: "nothing in the view differs from the host", Fix: "netsandbox exec web -- COMMAND"},
	},
	{
		name: "a difference without a type is one too",
		make: func(f *Facts) { f.Layer.Changes, f.Layer.Untyped = 0, []Obstacle{{Subject: "/dev/x"}} },
	},
	{
		name: "a difference over a moved host is one too",
		make: func(f *Facts) { f.Layer.Changes, f.Layer.Moved = 0, []Obstacle{{Subject: "/etc/x"}} },
	},
}

var changesRepresentableRows = []row{
	{name: "every difference has a type"},
	{
		name: "those without are named, with the first way out",
		make: func(f *Facts) {
			f.Layer.Untyped = []Obstacle{
				{Subject: "/run/x.sock", Reason: "a socket"},
				{Subject: "route 10.0.0.0/8", Fix: "netsandbox reset web --network"},
			}
		},
		want: &Refusal{
			Reason:   "differences that no plan can express",
			Subjects: []string{"/run/x.sock (a socket)", "route 10.0.0.0/8"},
			Fix:      "netsandbox reset web --network",
		},
	},
	{
		name: "a reason that many share is said once",
		make: func(f *Facts) {
			f.Layer.Untyped = []Obstacle{{Subject: "route a", Reason: "no type"}, {Subject: "route b", Reason: "no type"}, {Subject: "/run/x", Reason: "a socket"}}
		},
		want: &Refusal{Reason: "differences that no plan can express", Subjects: []string{"route a", "route b (no type)", "/run/x (a socket)"}},
	},
	{
		name: "of a whole firewall some are named, with their number",
		make: func(f *Facts) { f.Layer.Untyped = slices.Repeat([]Obstacle{{Subject: "rule", Reason: "no type"}}, 100) },
		want: &Refusal{
			Reason:   "differences that no plan can express",
			Subjects: append(slices.Repeat([]string{"rule"}, 7), "rule (no type)", "and 92 more"),
		},
	},
}

var originsUnchangedRows = []row{
	{name: "the host is where the change began"},
	{
		name: "a host file that moved on is named",
		make: func(f *Facts) {
			f.Layer.Moved = []Obstacle{
				{Subject: "/etc/x", Reason: "content differs", Fix: "netsandbox reset web /etc/x"},
				{Subject: "/etc/y", Reason: "origin uncertain", Fix: "netsandbox reset web /etc/y"},
			}
		},
		want: &Refusal{
			Reason:   "the host is not what the change was derived from",
			Subjects: []string{"/etc/x (content differs)", "/etc/y (origin uncertain)"},
			Fix:      "netsandbox reset web /etc/x",
		},
	},
}

var layerUnchangedRows = []row{
	{name: "checked and planned on this layer"},
	{
		name: "checked on another layer",
		make: func(f *Facts) { f.Layer.Digest = "sha256:other" },
		want: &Refusal{Reason: "the layer changed since it was checked", Fix: "netsandbox check web"},
	},
	{
		name: "what is not required does not count",
		make: func(f *Facts) {
			o := f.Observations[lan.ID]
			o.Layer = "sha256:other"
			f.Observations[lan.ID] = o
			f.Circuits = []circuit.Definition{api, {ID: lan.ID, Label: lan.Label, Kind: lan.Kind}}
		},
	},
	{
		name: "planned otherwise than it would be now",
		make: func(f *Facts) { f.Plan.Now = "sha256:other" },
		want: &Refusal{Reason: "the layer changed since it was planned", Fix: "netsandbox plan web"},
	},
	{
		name: "the plan of an earlier cycle does not count",
		make: func(f *Facts) { f.Plan = &Plan{Digest: digest, Now: "sha256:other", Cycle: 1} },
	},
	{
		name: "no plan at all",
		make: func(f *Facts) { f.Plan = nil },
	},
}

var viewIdleRows = []row{
	{name: "nothing lives in the view"},
	{
		name: "what lives there is named",
		make: func(f *Facts) { f.Processes, f.Drop = []string{"pid 12 sleep"}, []string{"--network"} },
		want: &Refusal{
			Reason: "processes are alive in the view", Subjects: []string{"pid 12 sleep"},
			Fix: "netsandbox reset web --network --stop",
		},
	},
}

var twinPresentRows = []row{
	{name: "the twin is there"},
	{
		name: "the twin was lost",
		make: func(f *Facts) { f.Layer.TwinLost = true },
		want: &Refusal{Reason: "the network twin was lost, and its changes with it", Fix: "netsandbox reset web --network"},
	},
}
