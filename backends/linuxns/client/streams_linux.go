package client

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// streams are the three files of a command, with what serves those that the
// caller did not have as files.
type streams struct {
	files [3]*os.File
	ours  []*os.File // to be closed once the command has them
	outs  []*os.File // read ends that are copied from
	copy  sync.WaitGroup
}

func openStreams(r Request) (_ *streams, err error) {
	s := &streams{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if r.Detach {
		r.Stdin, r.Stdout, r.Stderr = nil, nil, nil
	}
	if f, ok := r.Stdin.(*os.File); ok && f != nil {
		s.files[0] = f
	} else if r.Stdin == nil {
		s.files[0], err = s.null()
	} else {
		s.files[0], err = s.feed(r.Stdin)
	}
	if err != nil {
		return s, err
	}
	for i, w := range []io.Writer{r.Stdout, r.Stderr} {
		f, ok := w.(*os.File)
		switch {
		case ok && f != nil:
		case w == nil:
			f, err = s.null()
		case i == 1 && w == r.Stdout: // one writer, one pipe: the order is kept
			f = s.files[1]
		default:
			f, err = s.collect(w)
		}
		if err != nil {
			return s, err
		}
		s.files[i+1] = f
	}
	return s, nil
}

func (s *streams) null() (*os.File, error) {
	f, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open null device: %w", err)
	}
	s.ours = append(s.ours, f)
	return f, nil
}

// feed copies a reader into a pipe. The copy is not waited for: a reader may
// never end, and the command may not want it all.
func (s *streams) feed(from io.Reader) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	s.ours = append(s.ours, r)
	go func() {
		io.Copy(w, from)
		w.Close()
	}()
	return r, nil
}

// collect copies a pipe to a writer.
func (s *streams) collect(to io.Writer) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	s.ours, s.outs = append(s.ours, w), append(s.outs, r)
	s.copy.Go(func() { io.Copy(to, r) })
	return w, nil
}

// close ends the copies; what a daemon writes to a pipe afterwards is not the
// command's output.
func (s *streams) close() {
	for _, f := range s.ours {
		f.Close()
	}
	for _, f := range s.outs {
		_ = f.SetReadDeadline(time.Now().Add(drain))
	}
	s.copy.Wait()
	for _, f := range s.outs {
		f.Close()
	}
}
