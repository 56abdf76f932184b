package linuxns

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/nstest"
)

// clientArgv0 makes the test binary a client that runs its arguments in the view
// whose spec is in clientSpec.
const (
	clientArgv0 = "test-client"
	clientSpec  = "TEST_CLIENT_SPEC"
)

func TestMain(m *testing.M) {
	Main() // this binary is also its own holder and init
	if os.Args[0] == clientArgv0 {
		os.Exit(runClient())
	}
	nstest.Main(m)
}

func runClient() int {
	var spec backends.Spec
	if err := json.Unmarshal([]byte(os.Getenv(clientSpec)), &spec); err != nil {
		panic(err)
	}
	r := request(os.Args[1:]...)
	r.Stdin, r.Stdout, r.Stderr = os.Stdin, os.Stdout, os.Stderr
	status, err := New().Exec(context.Background(), spec, r)
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
	}
	return status
}

// clientCmd is a client process for a command.
func (e *env) clientCmd(argv ...string) *exec.Cmd {
	e.t.Helper()
	js, err := json.Marshal(e.spec)
	if err != nil {
		e.t.Fatal(err)
	}
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{clientArgv0}, argv...), Dir: "/",
		Env: append(os.Environ(), clientSpec+"="+string(js)), Stderr: os.Stderr,
	}
}
