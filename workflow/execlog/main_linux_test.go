package execlog

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// A child of a test is this binary started again with a part to play.
const partVar = "EXECLOG_TEST_PART"

func TestMain(m *testing.M) {
	if part := os.Getenv(partVar); part != "" {
		if err := play(part, os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	nstest.Main(m)
}

func play(part string, args []string) error {
	switch part {
	case "hold": // run a command until stdin ends
		r, err := Begin(args[0], Intent{Argv: []string{"sleep"}})
		if err != nil {
			return err
		}
		fmt.Println("begun")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return r.End(0)
	case "many":
		n, _ := strconv.Atoi(args[1])
		for range n {
			r, err := Begin(args[0], Intent{Argv: []string{"true", "an argument"}})
			if err != nil {
				return err
			}
			if err := r.End(0); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("no part %q", part)
}

func child(t *testing.T, part string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), partVar+"="+part)
	cmd.Stderr = os.Stderr
	return cmd
}

// held starts a child that runs a command in the environment, and returns how
// to end it.
func held(t *testing.T, dir string) (cmd *exec.Cmd, release func()) {
	t.Helper()
	cmd = child(t, "hold", dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
		t.Fatalf("child said %q (%v)", line, err)
	}
	return cmd, func() { in.Close(); _ = cmd.Wait() }
}
