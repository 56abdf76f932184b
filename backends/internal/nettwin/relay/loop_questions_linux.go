package relay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// maxQuestion bounds a message of the conversation.
const maxQuestion = 1 << 10

// AnswerLoop answers until the other end is gone. A message that is no question
// ends it: the relay parses hostile packets, and may be somebody else's by then.
func AnswerLoop(c *net.UnixConn, answer func(LoopQuestion) (LoopAnswer, error)) error {
	buf := make([]byte, maxQuestion)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return fmt.Errorf("hear question: %w", err)
		}
		if n == 0 {
			return io.EOF
		}
		var q LoopQuestion
		if err := json.Unmarshal(buf[:n], &q); err != nil {
			return fmt.Errorf("read question: %w", err)
		}
		a, err := answer(q)
		if err != nil {
			a.Err = err.Error()
		}
		b, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("send answer: %w", err)
		}
	}
}

// questions is the asking end. One question is open at a time; an answer takes
// microseconds.
type questions struct {
	mu   sync.Mutex
	conn *net.UnixConn
}

func (q *questions) ask(what LoopQuestion) (LoopAnswer, error) {
	if q == nil {
		return LoopAnswer{}, errors.New("nobody answers")
	}
	b, err := json.Marshal(what)
	if err != nil {
		return LoopAnswer{}, err
	}
	a, err := q.exchange(b)
	if err != nil {
		return LoopAnswer{}, err
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

// exchange sends a question and reads its answer. An answer that does not come
// ends the conversation: it would be taken for that to the next question.
func (q *questions) exchange(b []byte) (a LoopAnswer, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() {
		if err != nil {
			q.conn.Close()
		}
	}()
	if err := q.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return a, err
	}
	if _, err := q.conn.Write(b); err != nil {
		return a, err
	}
	buf := make([]byte, maxQuestion)
	n, err := q.conn.Read(buf)
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(buf[:n], &a)
}
