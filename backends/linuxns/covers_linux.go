package linuxns

import (
	"context"

	"github.com/netsandbox/netsandbox/backends"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/conceal"
	"github.com/netsandbox/netsandbox/backends/linuxns/internal/mountplan"
)

// Covers implements [backends.Concealer].
func (v *View) Covers(context.Context) ([]backends.Cover, []string, error) {
	table, err := mountplan.Read()
	if err != nil {
		return nil, nil, err
	}
	f := conceal.Find(v.spec.Hide, v.spec.Secrets, table)
	return f.Covers, f.Notes, nil
}

var _ backends.Concealer = (*View)(nil)
