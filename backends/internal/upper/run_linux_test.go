package upper

import "os/exec"

// run runs a shell script in a directory, with an empty umask of surprises.
func (l *lab) run(dir, script string) {
	l.t.Helper()
	cmd := exec.Command("sh", "-euc", "umask 022; "+script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}
