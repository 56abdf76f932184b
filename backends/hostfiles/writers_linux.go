package hostfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/netsandbox/netsandbox/backends/change"
)

// writers names the processes that have an object open. It is asked for only
// when something was written, since it looks at every descriptor there is.
func writers(n *node) string {
	links, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return ""
	}
	var who []string
	for _, l := range links {
		var st unix.Stat_t
		// Through the magic link: the descriptor's own object, whatever its path.
		if unix.Stat(l, &st) != nil || st.Ino != n.ino || st.Dev != n.dev {
			continue
		}
		pid := strings.Split(l, "/")[2]
		comm, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			continue
		}
		name := fmt.Sprintf("process %s (%s)", pid, change.Escape(strings.TrimSpace(string(comm))))
		if len(who) == 0 || who[len(who)-1] != name {
			who = append(who, name)
		}
	}
	return strings.Join(who, ", ")
}
