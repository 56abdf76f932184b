package faultfs

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// serverEnv marks a process as a server.
const serverEnv = "FAULTFS_SERVER"

// What a server finds open.
const (
	fuseFD = 3 + iota
	imageFD
	controlFD
)

// command is what the test tells the server; an empty one only asks.
type command struct {
	Set  *rule
	Heal bool
	Cut  bool
}

// response is the server's answer to each command.
type response struct {
	Status status
	Err    string
}

// Main must be called at the start of TestMain: a test binary is its own server.
// It returns unless this process is one.
func Main() {
	if os.Getenv(serverEnv) == "" {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "faultfs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve() error {
	image := os.NewFile(imageFD, "image")
	var st unix.Stat_t
	if err := unix.Fstat(imageFD, &st); err != nil {
		return fmt.Errorf("look at image: %w", err)
	}
	d := &device{image: image}
	go obey(d, os.NewFile(controlFD, "control"))
	return serveFUSE(fuseFD, d, uint64(st.Size))
}

// obey carries out commands. When nobody is left to give any, the device works
// again, so that whatever is mounted on it can be unmounted.
func obey(d *device, control *os.File) {
	defer d.set(nil)
	in, out := json.NewDecoder(control), json.NewEncoder(control)
	for {
		var c command
		if err := in.Decode(&c); err != nil {
			return
		}
		var r response
		switch {
		case c.Cut:
			if err := d.cut(); err != nil {
				r.Err = err.Error()
			}
		case c.Heal, c.Set != nil:
			d.set(c.Set)
		}
		r.Status = d.report()
		if err := out.Encode(r); err != nil {
			return
		}
	}
}
