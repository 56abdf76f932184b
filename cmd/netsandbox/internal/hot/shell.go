package hot

import (
	"os"
	"path/filepath"
)

// bashrc starts bash with a prompt that survives the user's own start-up file,
// which it reads first. The file is a pipe, because nothing may be written for
// it: the view shows the host's files, and the layer is the user's.
const bashrc = `exec "$0" --rcfile <(printf '%s\n' '[ -f ~/.bashrc ] && . ~/.bashrc' "PS1='$1'")`

// shell is what enter runs, and its environment.
func shell(r Request, env []string) (argv, environ []string) {
	path := r.Shell
	if path == "" {
		path = os.Getenv("SHELL")
	}
	if path == "" {
		path = "/bin/sh"
	}
	// Candidates stand at their own paths: the view has a root of its own.
	environ = append(env, EnvName+"="+r.Name, CandidateRoot+"=/")
	if filepath.Base(path) == "bash" {
		return []string{path, "-c", bashrc, path, "[nsb:" + r.Name + `]\$ `}, environ
	}
	sign := "$"
	if os.Geteuid() == 0 {
		sign = "#"
	}
	return []string{path}, append(environ, "PS1=[nsb:"+r.Name+"]"+sign+" ")
}
