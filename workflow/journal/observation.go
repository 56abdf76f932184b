package journal

import (
	"encoding/json"
	"fmt"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

// Observation is one result of one circuit, with what it was made for.
type Observation struct {
	Seq     int64
	Env     string // environment id
	Purpose string // "baseline", "check", "trial", …
	// Evidence is what each world answered.
	Evidence json.RawMessage
	circuit.Observation
}

const observationColumns = `seq, env, circuit, purpose, layer, result, reason, sensitive, took, evidence, at, boot_id, boottime`

func scanObservation(r row) (o Observation, err error) {
	err = r.Scan(&o.Seq, &o.Env, &o.Circuit, &o.Purpose, &o.Layer, &o.Result, &o.Reason, &o.Sensitive, &o.Took,
		raw{&o.Evidence}, wall{&o.At}, &o.BootID, &o.Boottime)
	return o, err
}

// AddObservation records an observation. One without a boot id is dated now;
// prefer the instant at which the probe began.
func (t *Tx) AddObservation(o Observation) error {
	if o.BootID == "" {
		now, err := t.opt.Clock()
		if err != nil {
			return err
		}
		o.BootID, o.Boottime, o.At = now.BootID, now.Boottime, now.At
	}
	evidence, err := compact(o.Evidence)
	if err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO observations (`+observationColumns+`) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		o.Env, o.Circuit, o.Purpose, o.Layer, string(o.Result), o.Reason, o.Sensitive, int64(o.Took),
		evidence, utc(o.At), o.BootID, int64(o.Boottime))
	if err != nil {
		return fmt.Errorf("record observation of circuit %s: %w", o.Circuit, err)
	}
	return nil
}

// LatestObservations returns the newest observation of each circuit that was
// made for a purpose on one layer, by circuit id. An empty layer means any.
func (t *Tx) LatestObservations(env, purpose, layer string) (map[string]Observation, error) {
	os, err := all(t, scanObservation, `SELECT `+observationColumns+` FROM observations WHERE seq IN (
		SELECT max(seq) FROM observations WHERE env = ? AND purpose = ? AND (? = '' OR layer = ?) GROUP BY circuit)`,
		env, purpose, layer, layer)
	if err != nil {
		return nil, fmt.Errorf("read observations: %w", err)
	}
	latest := make(map[string]Observation, len(os))
	for _, o := range os {
		latest[o.Circuit] = o
	}
	return latest, nil
}
