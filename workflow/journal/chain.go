package journal

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
)

// ChainError says where the chain of events is broken.
type ChainError struct {
	Seq    int64
	Reason string
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("event %d: %s", e.Seq, e.Reason)
}

// Unwrap makes a broken chain a kind of [ErrCorrupt].
func (e *ChainError) Unwrap() error { return ErrCorrupt }

// head returns where the chain ends.
func (t *Tx) head() (seq int64, hash string, err error) {
	err = explain(t.tx.QueryRow(`SELECT seq, hash FROM chain WHERE one = 1`).Scan(&seq, &hash))
	if err != nil {
		err = fmt.Errorf("read end of event chain: %w", err)
	}
	return seq, hash, err
}

// digest covers every column of an event and, through prev, every event before
// it. Fields are length-prefixed: no two events share an encoding.
func (e Event) digest() string {
	h := sha256.New()
	for _, s := range []string{
		"netsandbox/event/v1", e.Prev, e.Env, e.Txn, e.Event, e.Actor, string(e.Data), utc(e.At), e.BootID,
	} {
		number(h, uint64(len(s)))
		h.Write([]byte(s))
	}
	number(h, uint64(e.Seq))
	number(h, uint64(e.Boottime))
	return hex.EncodeToString(h.Sum(nil))
}

func number(h hash.Hash, n uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	h.Write(b[:])
}

// VerifyChain recomputes the chain of events and returns how many there are. A
// [ChainError] names the first that does not fit.
func (t *Tx) VerifyChain() (int64, error) {
	rows, err := t.tx.Query(`SELECT ` + eventColumns + ` FROM events ORDER BY seq`)
	if err != nil {
		return 0, fmt.Errorf("verify events: %w", explain(err))
	}
	defer rows.Close()
	var last Event
	for rows.Next() {
		e, err := scanEvent(rows)
		switch {
		case err != nil:
			return last.Seq, fmt.Errorf("verify events: %w", explain(err))
		case e.Seq != last.Seq+1:
			return last.Seq, &ChainError{Seq: last.Seq + 1, Reason: "it is missing"}
		case e.Prev != last.Hash:
			return last.Seq, &ChainError{Seq: e.Seq, Reason: "it does not follow the event before it"}
		case e.Hash != e.digest():
			return last.Seq, &ChainError{Seq: e.Seq, Reason: "its content was edited"}
		}
		last = e
	}
	if err := rows.Err(); err != nil {
		return last.Seq, fmt.Errorf("verify events: %w", explain(err))
	}
	seq, hash, err := t.head()
	if err == nil && (seq != last.Seq || hash != last.Hash) {
		err = &ChainError{Seq: last.Seq + 1, Reason: "it is missing"}
	}
	return last.Seq, err
}

// VerifyChain is [Tx.VerifyChain] on a snapshot of its own.
func (s *Store) VerifyChain(ctx context.Context) (n int64, err error) {
	err = s.View(ctx, func(tx *Tx) error {
		n, err = tx.VerifyChain()
		return err
	})
	return n, err
}
