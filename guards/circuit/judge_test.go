package circuit

import "testing"

var (
	yes  = Answer{Ran: true, OK: true}
	no   = Answer{Ran: true, Reason: "connection refused"}
	none = Answer{Reason: "no room"}
)

func TestJudge(t *testing.T) {
	for _, row := range []struct {
		name      string
		kind      Kind
		evidence  Evidence
		want      Result
		reason    string
		sensitive bool
	}{
		{
			name: "works in the view and notices a cut", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: yes, Cut: no, Host: yes},
			want:     Preserved, sensitive: true,
		},
		{
			name: "works in the view, the cut was not tried", kind: TCP,
			evidence: Evidence{Candidate: yes, Control: yes, Cut: none, Host: yes},
			want:     Preserved,
		},
		{
			name: "works even when cut off", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: yes, Cut: yes, Host: yes},
			want:     Insensitive, reason: "passes with the way out cut",
		},
		{
			name: "insensitive is said even when it repaired something", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: no, Cut: yes, Host: no},
			want:     Insensitive, reason: "passes with the way out cut",
		},
		{
			name: "fails in the view, works without the change", kind: Canary,
			evidence: Evidence{Candidate: no, Control: yes, Cut: no, Host: yes},
			want:     Lost, reason: "connection refused", sensitive: true,
		},
		{
			name: "fails in the view and passes when cut: lost all the same", kind: Canary,
			evidence: Evidence{Candidate: no, Control: yes, Cut: yes, Host: yes},
			want:     Lost, reason: "connection refused",
		},
		{
			name: "a repair, seen on the host", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: no, Cut: no, Host: no},
			want:     New, reason: "failed before the change: connection refused", sensitive: true,
		},
		{
			name: "a repair, the host could not be asked", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: no, Cut: no, Host: none},
			want:     New, reason: "failed before the change: connection refused", sensitive: true,
		},
		{
			name: "works on the host and in the view, not on a pristine twin", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: no, Cut: no, Host: yes},
			want:     Preserved, sensitive: true,
		},
		{
			name: "works in the view, no control view", kind: Canary,
			evidence: Evidence{Candidate: yes, Control: none, Cut: no, Host: no},
			want:     Preserved, sensitive: true,
		},
		{
			name: "the twin's limit is not the change's fault", kind: TCP,
			evidence: Evidence{Candidate: no, Control: no, Cut: no, Host: yes},
			want:     Unverifiable, reason: "fails on an unchanged twin too: connection refused", sensitive: true,
		},
		{
			name: "failed before and fails now", kind: Canary,
			evidence: Evidence{Candidate: no, Control: no, Cut: no, Host: no},
			want:     Lost, reason: "failed before the change too: connection refused", sensitive: true,
		},
		{
			name: "failed before on the twin, the host could not be asked", kind: Canary,
			evidence: Evidence{Candidate: no, Control: no, Cut: no, Host: none},
			want:     Unverifiable, reason: "fails on an unchanged twin too, and the host cannot tell: no room", sensitive: true,
		},
		{
			name: "fails with nothing to compare it with", kind: Canary,
			evidence: Evidence{Candidate: no, Control: none, Cut: no, Host: yes},
			want:     Unverifiable, reason: "control view: no room", sensitive: true,
		},
		{
			name: "never ran in the candidate view", kind: Canary,
			evidence: Evidence{Candidate: none, Control: yes, Cut: no, Host: yes},
			want:     Unverifiable, reason: "candidate view: no room",
		},
		{
			name: "nobody here can be the client", kind: Inbound,
			evidence: Evidence{Candidate: yes, Control: yes, Cut: no, Host: yes},
			want:     Unverifiable, reason: "the client is elsewhere; no paired outside probe",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, reason, sensitive := Judge(Definition{Kind: row.kind}, row.evidence)
			if r != row.want || reason != row.reason || sensitive != row.sensitive {
				t.Errorf("Judge = %s, %q, %v; want %s, %q, %v", r, reason, sensitive, row.want, row.reason, row.sensitive)
			}
		})
	}
}

// TestJudgeNeverPassesAFailure asks every combination of answers: what failed in
// the candidate view never holds, and what did not run is never Lost.
func TestJudgeNeverPassesAFailure(t *testing.T) {
	answers := []Answer{yes, no, none}
	for _, candidate := range answers {
		for _, control := range answers {
			for _, cut := range answers {
				for _, host := range answers {
					e := Evidence{Candidate: candidate, Control: control, Cut: cut, Host: host}
					r, _, sensitive := Judge(Definition{Kind: Canary}, e)
					if r.Holds() != candidate.OK {
						t.Errorf("%+v is %s", e, r)
					}
					if !candidate.Ran && r == Lost {
						t.Errorf("%+v is lost although it never ran", e)
					}
					if sensitive && (!cut.Ran || cut.OK) {
						t.Errorf("%+v is called sensitive", e)
					}
				}
			}
		}
	}
}
