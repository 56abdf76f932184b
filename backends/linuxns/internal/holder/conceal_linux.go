package holder

import (
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/conceal"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
)

// hidden lists what views hide now. Nothing is staged there: a mount of ours is
// in the way, in this namespace as in the view.
func (h *Holder) hidden() ([]string, error) {
	table, err := mountplan.Read()
	if err != nil {
		return nil, err
	}
	return conceal.Find(h.spec.Hide, h.spec.Secrets, table).Paths(), nil
}
