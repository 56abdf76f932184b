package main

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// terminalCmd runs a command with all three streams on a terminal of 40 lines
// and 100 columns, types a file into it, and wants its exit status:
// `terminal 0 input netsandbox enter edge`. What came out is its stdout.
func terminalCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: terminal STATUS FILE COMMAND ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	input := ts.ReadFile(args[1])
	path := args[2]
	if path == "netsandbox" {
		path = ts.Getenv("NETSANDBOX")
	}
	cmd := exec.Command(path, args[3:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"PATH", "HOST", "LAB", "NETSANDBOX_STATE_DIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100})
	ts.Check(err)
	defer master.Close()
	stuck := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	var out bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&out, master) // EIO when the last other end is closed
	}()
	_, err = io.WriteString(master, input)
	ts.Check(err)
	err = cmd.Wait()
	<-read
	_, _ = ts.Stdout().Write(bytes.ReplaceAll(out.Bytes(), []byte("\r\n"), []byte("\n")))
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	if got := cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("exit status %d, want %d:\n%s", got, want, out.Bytes())
	}
}
