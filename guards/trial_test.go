package guards

import (
	"time"

	"github.com/netsandbox/netsandbox/guards/authority"
	"github.com/netsandbox/netsandbox/guards/circuit"
	"github.com/netsandbox/netsandbox/states"
)

var planCurrentRows = []row{
	{name: "recorded as it would be made now"},
	{
		name: "no plan",
		make: func(f *Facts) { f.Plan = nil },
		want: &Refusal{Reason: "there is no plan of this cycle", Fix: "netsandbox plan web"},
	},
	{
		name: "a plan of an earlier cycle",
		make: func(f *Facts) { f.Plan.Cycle = 1 },
		want: &Refusal{Reason: "there is no plan of this cycle", Fix: "netsandbox plan web"},
	},
	{
		name: "planning again gives another",
		make: func(f *Facts) { f.State, f.Plan.Now = states.Planned, "sha256:other" },
		want: &Refusal{
			Reason: "the plan is not current", Subjects: []string{"recorded sha256:plan", "now sha256:other"},
			Fix: "netsandbox plan web",
		},
	},
	{
		name: "planning again gives another, and the old one has authority",
		make: func(f *Facts) { f.State, f.Plan.Now = states.Authorized, "sha256:other" },
		want: &Refusal{
			Reason: "the plan is not current", Subjects: []string{"recorded sha256:plan", "now sha256:other"},
			Fix: "netsandbox revoke web",
		},
	},
}

// without is authority's refusal for the reason.
func without(reason string) *Refusal {
	return &Refusal{Reason: reason, Fix: "netsandbox authorize web --plan sha256:plan"}
}

var authorityHeldRows = []row{
	{name: "a grant for this plan"},
	{name: "a grant in its last instant", make: func(f *Facts) { f.Now = f.Grant.Expires }},
	{name: "no grant", make: func(f *Facts) { f.Grant = nil }, want: without("no authority was given for this plan")},
	{name: "expired", make: func(f *Facts) { f.Now = f.Grant.Expires + 1 }, want: without("the grant expired")},
	{name: "used", make: func(f *Facts) { f.Grant.Used = true }, want: without("the grant was used by an earlier trial")},
	{name: "revoked", make: func(f *Facts) { f.Grant.Revoked = true }, want: without("the grant was revoked")},
	{name: "for another plan", make: func(f *Facts) { f.Grant.Plan = "sha256:other" }, want: without("the grant is for another plan")},
	{name: "of an earlier cycle", make: func(f *Facts) { f.Grant.Cycle = 1 }, want: without("the grant is from an earlier cycle")},
	{name: "of another boot", make: func(f *Facts) { f.BootID = reboot }, want: without("the grant is from before the last boot")},
	{
		name: "nothing to authorize",
		make: func(f *Facts) { f.Plan = nil },
		want: &Refusal{Reason: "there is no plan to authorize", Fix: "netsandbox authorize web --plan DIGEST"},
	},
	{
		name: "an empty grant for an empty plan",
		make: func(f *Facts) {
			f.Plan = &Plan{Cycle: 2}
			f.Grant = &authority.Grant{Cycle: 2, BootID: boot, Expires: now + time.Minute}
		},
		want: &Refusal{Reason: "there is no plan to authorize", Fix: "netsandbox authorize web --plan DIGEST"},
	},
}

var hostLockRows = []row{
	{name: "ours"},
	{
		name: "another trial's, by name",
		make: func(f *Facts) { f.HostLock = Lock{By: "apply-20260101-000000-X of db"} },
		want: &Refusal{
			Reason: "another trial has the host", Subjects: []string{"apply-20260101-000000-X of db"},
			Fix: "netsandbox history",
		},
	},
	{
		name: "somebody's",
		make: func(f *Facts) { f.HostLock = Lock{} },
		want: &Refusal{Reason: "another trial has the host", Fix: "netsandbox history"},
	},
}

var leaseArmedRows = []row{
	{name: "watched, and across a reboot"},
	{
		name: "nobody watches",
		make: func(f *Facts) { f.Lease.Armed = false },
		want: &Refusal{Reason: "no keeper watches the trial", Fix: "netsandbox apply web --yes"},
	},
	{
		name: "nobody would watch after a reboot",
		make: func(f *Facts) { f.Lease.BootPresent = false },
		want: &Refusal{
			Reason: "nothing would undo the trial after a reboot: no service manager here can run the recovery unit",
			Fix:    "netsandbox apply web --yes --no-boot-recovery",
		},
	},
	{name: "waived in plan and grant", make: func(f *Facts) { f.Lease.BootPresent, f.Lease.BootWaived = false, true }},
	{name: "not needed below a base of one's own", make: func(f *Facts) { f.Lease.BootPresent, f.Lease.BootRequired = false, false }},
}

var leaseHeldRows = []row{
	{name: "watched still"},
	{
		name: "lapsed",
		make: func(f *Facts) { f.Lease.Held = false },
		want: &Refusal{Reason: "the lease is not held any more", Fix: "netsandbox recover"},
	},
	{
		name: "never armed",
		make: func(f *Facts) { f.Lease.Armed = false },
		want: &Refusal{Reason: "the lease is not held any more", Fix: "netsandbox recover"},
	},
}

// onHost makes a circuit's answer from the host so.
func onHost(d circuit.Definition, r circuit.Result, reason string) func(*Facts) {
	return func(f *Facts) { f.Trial.Results[d.ID] = seen(d, r, reason) }
}

func lostOnHost(subjects ...string) *Refusal {
	return &Refusal{Reason: "a required circuit does not hold on the host", Subjects: subjects}
}

var trialPreservedRows = []row{
	{name: "as planned, and every circuit answers"},
	{name: "a repair holds", make: onHost(api, circuit.New, "")},
	{
		name: "the host is not as planned",
		make: func(f *Facts) {
			f.Trial.Verified, f.Trial.Differs = false, []Obstacle{{Subject: "/etc/x", Reason: "mode 644, want 600", Fix: "not shown"}}
		},
		want: &Refusal{Reason: "the host does not equal the plan", Subjects: []string{"/etc/x (mode 644, want 600)"}},
	},
	{name: "lost", make: onHost(api, circuit.Lost, "refused"), want: lostOnHost("circuit api is lost (refused)")},
	{
		name: "all that are lost are named",
		make: func(f *Facts) { onHost(api, circuit.Lost, "a")(f); onHost(lan, circuit.Unverifiable, "b")(f) },
		want: lostOnHost("circuit api is lost (a)", "circuit lan is unverifiable (b)"),
	},
	{
		name: "not checked",
		make: func(f *Facts) { delete(f.Trial.Results, lan.ID) },
		want: lostOnHost("circuit lan was not checked on the host"),
	},
	{
		name: "a circuit that is not required may be lost",
		make: func(f *Facts) { f.Circuits[1].Required = false; onHost(lan, circuit.Lost, "")(f) },
	},
	{
		name: "--auto-rollback=false keeps a failed circuit",
		make: func(f *Facts) { f.Trial.Keep = true; onHost(api, circuit.Lost, "")(f) },
	},
	{
		name: "--auto-rollback=false keeps no host that is not as planned",
		make: func(f *Facts) { f.Trial.Keep, f.Trial.Verified = true, false },
		want: &Refusal{Reason: "the host does not equal the plan"},
	},
	{
		name: "a loss that was planned and authorized",
		make: func(f *Facts) { f.Warn = true; observe(api, circuit.Lost, "")(f); onHost(api, circuit.Lost, "")(f) },
	},
	{
		name: "a loss that nobody had seen before",
		make: func(f *Facts) { f.Warn = true; onHost(api, circuit.Lost, "x")(f) },
		want: lostOnHost("circuit api is lost (x)"),
	},
	{
		name: "a loss seen before, without --on-failure warn",
		make: func(f *Facts) { observe(api, circuit.Lost, "")(f); onHost(api, circuit.Lost, "x")(f) },
		want: lostOnHost("circuit api is lost (x)"),
	},
	{
		name: "--on-failure warn excuses nothing but lost",
		make: func(f *Facts) {
			f.Warn = true
			observe(api, circuit.Lost, "")(f)
			onHost(api, circuit.Unverifiable, "x")(f)
		},
		want: lostOnHost("circuit api is unverifiable (x)"),
	},
	{
		name: "inbound waits for the confirmation",
		make: func(f *Facts) {
			f.Circuits, f.Trial.ConfirmRequired = append(f.Circuits, ssh), true
			onHost(ssh, circuit.Unverifiable, "")(f)
		},
	},
	{
		name: "inbound without a confirmation to come",
		make: func(f *Facts) { f.Circuits = append(f.Circuits, ssh); onHost(ssh, circuit.Unverifiable, "x")(f) },
		want: lostOnHost("circuit ssh is unverifiable (x)"),
	},
	{
		name: "a confirmation settles inbound only",
		make: func(f *Facts) { f.Trial.ConfirmRequired = true; onHost(lan, circuit.Unverifiable, "x")(f) },
		want: lostOnHost("circuit lan is unverifiable (x)"),
	},
}

var confirmedRows = []row{
	{name: "nobody was asked"},
	{name: "asked and confirmed", make: func(f *Facts) { f.Trial.ConfirmRequired, f.Trial.Confirmed = true, true }},
	{
		name: "asked and silent",
		make: func(f *Facts) { f.Trial.ConfirmRequired = true },
		want: &Refusal{Reason: "nobody confirmed the trial in time", Fix: "netsandbox confirm TRANSACTION NONCE"},
	},
}

var undoVerifiedRows = []row{
	{name: "as before"},
	{
		name: "what is left is named",
		make: func(f *Facts) { f.Undo = Undo{Left: []Obstacle{{Subject: "/etc/x", Reason: "edited meanwhile"}}} },
		want: &Refusal{
			Reason: "the undo is not complete", Subjects: []string{"/etc/x (edited meanwhile)"},
			Fix: "netsandbox recover",
		},
	},
}

var reversibleRows = []row{
	{name: "the newest, and the host as committed"},
	{
		name: "not compared with the host",
		make: func(f *Facts) { f.Reverse.Known = false },
		want: &Refusal{Reason: "the transaction was not compared with the host", Fix: "netsandbox history"},
	},
	{
		name: "newer ones first, in order",
		make: func(f *Facts) { f.Reverse.Newer = []string{"apply-3", "apply-2"} },
		want: &Refusal{
			Reason:   "newer transactions cover the same paths; roll them back first, in this order",
			Subjects: []string{"apply-3", "apply-2"}, Fix: "netsandbox rollback apply-3 --yes",
		},
	},
	{
		name: "the host moved on",
		make: func(f *Facts) {
			f.Reverse.Drifted = []Obstacle{{Subject: "/etc/x", Reason: "content differs", Fix: "netsandbox history"}}
		},
		want: &Refusal{
			Reason: "the host is not as it was committed", Subjects: []string{"/etc/x (content differs)"},
			Fix: "netsandbox history",
		},
	},
}
