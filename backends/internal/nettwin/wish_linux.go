package nettwin

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// wish is one message to send to the twin, and what it says in words.
type wish struct {
	typ   uint16
	flags int
	msg   []byte
	text  string
	err   error // why it was refused the last time
}

// replay sends lists of wishes in up to four rounds. What is refused to the end
// becomes a note: the twin is then poorer than the host and says so.
func (r *replica) replay(lists ...[]wish) error {
	for range 4 {
		left := 0
		for i, list := range lists {
			again, err := r.try(list)
			if err != nil {
				return err
			}
			lists[i] = again
			left += len(again)
		}
		if left == 0 {
			return nil
		}
	}
	for _, w := range slices.Concat(lists...) {
		r.notes = append(r.notes, fmt.Sprintf("%s is not in the twin: %v", w.text, w.err))
	}
	return nil
}

// try sends wishes of one kind and returns those that were refused.
func (r *replica) try(list []wish) ([]wish, error) {
	if len(list) == 0 {
		return nil, nil
	}
	batch := make([][]byte, len(list))
	for i, w := range list {
		batch[i] = w.msg
	}
	var again []wish
	for i, err := range r.conn.Batch(list[0].typ, list[0].flags, batch) {
		if err == nil || errors.Is(err, unix.EEXIST) {
			continue
		}
		if _, ok := errors.AsType[unix.Errno](err); !ok {
			return nil, fmt.Errorf("add %s: %w", list[i].text, err)
		}
		list[i].err = err
		again = append(again, list[i])
	}
	return again, nil
}
