package client

import (
	"context"
	"io"

	"github.com/netsandbox/netsandbox/backends/linuxns/internal/wire"
)

// Question is what may be asked from inside a view.
type Question = wire.Ask

// Ask puts a question to the holder of the view that this process is in, copies
// the answer to the writers and returns the exit status of the verb.
func Ask(ctx context.Context, q Question, stdout, stderr io.Writer) (int, error) {
	return q.Put(ctx, stdout, stderr)
}
