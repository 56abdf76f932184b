package change

import "fmt"

// Commands renders a change as the commands an administrator would type to get
// the same result. They are for reading: the content of a file is named in a
// comment, and what stands for it is /dev/stdin.
func (c Change) Commands() []string {
	path := Quote(string(c.Path))
	switch {
	case c.New == nil && c.Old == nil:
		return nil
	case c.New == nil:
		return []string{removal(c.Old, path)}
	case c.Old == nil:
		return creation(c.New, path)
	case c.Old.Type != c.New.Type:
		return append([]string{removal(c.Old, path)}, creation(c.New, path)...)
	case c.New.Type == Regular && c.Old.SHA256 != c.New.SHA256:
		return creation(c.New, path)
	case c.New.Type == Symlink && c.Old.Target != c.New.Target:
		cmds := []string{fmt.Sprintf("ln -sfn %s %s", Quote(string(c.New.Target)), path)}
		if owner(c.New) != "0:0" {
			cmds = append(cmds, fmt.Sprintf("chown -h %s %s", owner(c.New), path))
		}
		return cmds
	}
	return attributes(c, path)
}

func removal(e *Entry, path string) string {
	if e.Type == Directory {
		return "rmdir " + path
	}
	return "rm " + path
}

func creation(e *Entry, path string) []string {
	switch e.Type {
	case Directory:
		cmds := []string{fmt.Sprintf("mkdir -m %04o %s", e.Mode, path)}
		if owner(e) != "0:0" {
			cmds = append(cmds, fmt.Sprintf("chown %s %s", owner(e), path))
		}
		return cmds
	case Symlink:
		cmds := []string{fmt.Sprintf("ln -s %s %s", Quote(string(e.Target)), path)}
		if owner(e) != "0:0" {
			cmds = append(cmds, fmt.Sprintf("chown -h %s %s", owner(e), path))
		}
		return cmds
	}
	return []string{fmt.Sprintf("install -m %04o -o %d -g %d /dev/stdin %s # %s", e.Mode, e.UID, e.GID, path, size(e))}
}

// attributes renders a change of owner or mode. Owner first: chown(2) clears the
// setuid bits that chmod then sets.
func attributes(c Change, path string) []string {
	var cmds []string
	chowned := owner(c.Old) != owner(c.New)
	if chowned {
		flag := ""
		if c.New.Type == Symlink {
			flag = "-h "
		}
		cmds = append(cmds, fmt.Sprintf("chown %s%s %s", flag, owner(c.New), path))
	}
	if c.Old.Mode != c.New.Mode || chowned && c.New.Mode&0o6000 != 0 {
		cmds = append(cmds, fmt.Sprintf("chmod %04o %s", c.New.Mode, path))
	}
	return cmds
}
