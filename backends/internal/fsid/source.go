package fsid

import (
	"encoding/json"
	"strings"

	"github.com/netsandbox/netsandbox/backends/change"
)

// Source is the mount of the host over which a layer was made. A layer is only
// ever laid over that filesystem: its whiteouts and copies mean nothing on
// another one.
type Source struct {
	Point string // mount point on the host; "/" is the root
	Dev   string // "major:minor" as in mountinfo
	FS    string // filesystem type
	Root  string // the mount's root within its filesystem
	ID    string // what [Of] said of it; empty when it is not known
}

// Same reports whether s and o are the same part of the same filesystem. What
// one of them does not know does not count.
func (s Source) Same(o Source) bool {
	if s.Point != o.Point || s.FS != "" && o.FS != "" && s.FS != o.FS || s.Root != "" && o.Root != "" && s.Root != o.Root {
		return false
	}
	if same, known := Same(s.ID, o.ID); known {
		return same
	}
	// Anonymous device numbers (major 0: btrfs, tmpfs) are other ones after each
	// mount.
	anonymous := strings.HasPrefix(s.Dev, "0:") && strings.HasPrefix(o.Dev, "0:")
	return s.Dev == "" || o.Dev == "" || s.Dev == o.Dev || anonymous
}

// text is the form on disk: paths are bytes, and JSON is not.
type text struct {
	Point change.Path `json:"point"`
	Dev   string      `json:"dev"`
	FS    string      `json:"fs"`
	Root  change.Path `json:"root"`
	ID    string      `json:"id,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (s Source) MarshalJSON() ([]byte, error) {
	return json.Marshal(text{change.Path(s.Point), s.Dev, s.FS, change.Path(s.Root), s.ID})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Source) UnmarshalJSON(b []byte) error {
	var t text
	if err := json.Unmarshal(b, &t); err != nil {
		return err
	}
	*s = Source{string(t.Point), t.Dev, t.FS, string(t.Root), t.ID}
	return nil
}
