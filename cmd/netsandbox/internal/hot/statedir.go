package hot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// RootStateDir is where root keeps everything persistent.
const RootStateDir = "/var/lib/netsandbox"

// Variables of the environment, in a view and before it.
const (
	EnvName       = "NETSANDBOX_ENV"            // set in a view: its name
	CandidateRoot = "NETSANDBOX_CANDIDATE_ROOT" // set by enter: where candidates are found
	stateDirVar   = "NETSANDBOX_STATE_DIR"
)

// StateDir resolves the state directory: flag, variable, default.
func StateDir(flag string, getenv func(string) string) (string, error) {
	dir := flag
	if dir == "" {
		dir = getenv(stateDirVar)
	}
	if dir == "" {
		if os.Geteuid() == 0 {
			return RootStateDir, nil
		}
		base := getenv("XDG_STATE_HOME")
		if base == "" {
			home := getenv("HOME")
			if home == "" {
				return "", errors.New("no state directory: HOME is not set; give --state-dir DIR")
			}
			base = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(base, "netsandbox")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolve state directory %s: %w", dir, err)
	}
	return abs, nil
}
