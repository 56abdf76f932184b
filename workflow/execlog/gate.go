package execlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const gateFile = "gate"

// What a gate says, in its first word. Anything after it is for people: the
// transaction of a trial.
const (
	Open  = "open"
	Trial = "trial"
	Gone  = "gone"
)

// Gate makes the gate of an environment say text, durably. It takes the lock
// under which commands are recorded: when it returns, every command that will
// ever have passed the old gate is in the log.
func Gate(dir, text string) error {
	if strings.ContainsRune(text, '\n') {
		return fmt.Errorf("write %s: bug: a gate is one line", gateFile)
	}
	e, err := openEnv(dir)
	if err != nil {
		return err
	}
	defer e.Close()
	f, err := e.openLog(os.O_RDWR|os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := e.replaceGate(text); err == nil || !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	// An undo opens the gate again and must not need new space. A line this short
	// is in one sector, so overwriting it is as good as atomic; a torn one opens
	// nothing.
	return e.overwriteGate(text)
}

// Shut reports whether the gate of an environment keeps commands out.
func Shut(dir string) (bool, error) {
	e, err := openEnv(dir)
	if err != nil {
		return false, err
	}
	defer e.Close()
	f, err := e.openLog(os.O_RDWR|os.O_CREATE, unix.LOCK_EX)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return e.passable() != nil, nil
}

// replaceGate puts a new file in the gate's place.
func (e *envDir) replaceGate(text string) error {
	const fresh = gateFile + ".new"
	f, err := e.open(fresh, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteString(text + "\n"); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = unix.Renameat(int(e.root.Fd()), fresh, int(e.root.Fd()), gateFile)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", gateFile, err), unix.Unlinkat(int(e.root.Fd()), fresh, 0))
	}
	return e.root.Sync()
}

// overwriteGate writes over the gate's first line; what was longer stays behind
// the newline and is not read.
func (e *envDir) overwriteGate(text string) error {
	f, err := e.open(gateFile, os.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteAt([]byte(text+"\n"), 0); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", gateFile, err)
	}
	return nil
}

// passable returns nil when commands may run. The caller holds the log's lock.
func (e *envDir) passable() error {
	f, err := e.open(gateFile, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: it was not completely created", ErrGone)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return fmt.Errorf("read %s: %w", gateFile, err)
	}
	line, _, whole := bytes.Cut(b, []byte{'\n'})
	word, rest, _ := strings.Cut(string(line), " ")
	switch {
	case whole && word == Open:
		return nil
	case whole && word == Gone:
		return ErrGone
	case rest != "":
		return fmt.Errorf("%w: %s", ErrTrial, rest)
	}
	return ErrTrial // also when it cannot be read: shut is the safe side
}
