package holder

import (
	"sync"
	"time"

	"github.com/netsandbox/netsandbox/backends/internal/nettwin"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/lanes"
	"github.com/netsandbox/netsandbox/backends/internal/nettwin/nft"
)

// firewall answers what has to be known of the host's packet filters. To read one
// with ten thousand rules takes a while, so one reading serves the questions of a
// moment.
type firewall struct {
	ns int // the host's network namespace

	mu   sync.Mutex
	seen *nft.Seen
	at   time.Time
}

// moment is how old a reading may be.
const moment = time.Second

func (f *firewall) look() (*nft.Seen, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.seen != nil && time.Since(f.at) < moment {
		return f.seen, nil
	}
	seen, err := nettwin.Firewall(f.ns)
	if err != nil {
		return nil, err
	}
	f.seen, f.at = seen, time.Now()
	return seen, nil
}

// marks lists the marks that are in use.
func (f *firewall) marks() ([]lanes.Mark, error) {
	seen, err := f.look()
	if err != nil {
		return nil, err
	}
	var out []lanes.Mark
	for _, m := range seen.Marks {
		out = append(out, lanes.Mark{Value: m.Value, Mask: m.Mask})
	}
	return out, nil
}

// filters names what drops answers that come another way than they would go.
func (f *firewall) filters() ([]string, error) {
	seen, err := f.look()
	if err != nil {
		return nil, err
	}
	return seen.RPFilter, nil
}
