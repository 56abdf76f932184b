package backends

import (
	"context"
	"errors"
	"io"

	"github.com/netsandbox/netsandbox/backends/change"
)

// ErrHostChanged: the host is no longer what a plan was made from. Snapshot and
// Swap wrap it; nothing of the other party's is lost, the transaction is undone.
var ErrHostChanged = errors.New("host changed since it was planned")

// Host is a typed adapter to the real machine for one kind of change. The
// transaction drives it phase by phase and makes each phase durable in its own
// file between the calls; the keeper and recover drive Undo and Clean from that
// file alone.
//
// Every method must tolerate being called again after a crash at any point
// inside it: identity is by inode number and content hash, never by position.
// Undo and Clean never need new space.
type Host interface {
	// Kind is the family of changes this adapter handles.
	Kind() change.Kind
	// Observe returns what the host has at each path now, in the form of an
	// origin; nil where nothing is there. It follows no symlink.
	Observe(ctx context.Context, paths []change.Path) ([]*change.Entry, error)
	// Preflight names everything that would make Stage or Swap fail: no space,
	// immutable, read-only, mount point, a parent that is a symlink, ….
	Preflight(ctx context.Context, cs []change.Change) ([]change.Blocker, error)
	// Snapshot plans the steps that apply cs and returns, per step, everything
	// its undo needs. It only reads.
	Snapshot(ctx context.Context, txn string, cs []change.Change) ([]Step, error)
	// Stage writes everything wanted into hidden places beside the targets and
	// makes it durable. It returns the steps completed with what was made.
	Stage(ctx context.Context, steps []Step, wanted Wanted) ([]Step, error)
	// Swap puts the staged objects in place, in order, then makes it durable.
	Swap(ctx context.Context, steps []Step) error
	// Verify compares the host with what the steps want.
	Verify(ctx context.Context, steps []Step) ([]Leftover, error)
	// Undo takes the steps back, last first: what is ours goes back, what is the
	// original stays, anything else is left alone and reported. Steps that were
	// never reached are no error.
	Undo(ctx context.Context, steps []Step) ([]Leftover, error)
	// Clean removes what the transaction left hidden on the host. With keep, the
	// originals stay where they are as the first backup.
	Clean(ctx context.Context, steps []Step, keep bool) error
}

// Bounded is a [Host] that can be told the directory above which it must put
// nothing. Only Preflight and Snapshot choose places, so only they need it.
type Bounded interface {
	Within(base string) Host
}

// Labeller is a [Host] that knows whether its files carry security labels, which
// a plan has to say something about.
type Labeller interface {
	Labelled() bool
}

// Step is one change with the bookkeeping of its adapter. It is stored as JSON
// in the transaction file.
type Step struct {
	Change change.Change `json:"change"`
	// Place is the adapter's own record: temp names, inode numbers, hashes.
	Place Place `json:"place"`
}

// Place is where a file change is staged and how it is recognised in replay.
type Place struct {
	// Dir is the hidden directory on the target's own filesystem; Name is the
	// entry in it that holds the staged object before the swap and the original
	// after it.
	Dir  change.Path `json:"dir,omitempty"`
	Name string      `json:"name,omitempty"`
	// Staged is the identity of the object we made, known after Stage.
	Staged *change.Identity `json:"staged,omitempty"`
	// Original is the identity of what stood at the target before.
	Original *change.Identity `json:"original,omitempty"`
	// Parent is the identity of the directory that holds the target.
	Parent *change.Identity `json:"parent,omitempty"`
	// Within is the Name of the step that carries this one: a new directory is
	// put in place with all that is in it, an old one is taken away so.
	Within string `json:"within,omitempty"`
	// DirBefore is the modification time of the directory that the step touches
	// (the parent, or the target itself where it is changed in place); DirAfter
	// is what the swap leaves there. A third value is somebody else's work.
	DirBefore int64 `json:"dir_before,omitempty"`
	DirAfter  int64 `json:"dir_after,omitempty"`
	// Handle is what the filesystem itself calls an original with several names
	// (name_to_handle_at(2): a type, then bytes). It finds the object under
	// whatever name it still has, and no other, though its number may be given
	// again. None where the filesystem has no such thing.
	Handle []byte `json:"handle,omitempty"`
}

// Wanted opens the frozen bytes of a plan by content hash.
type Wanted interface {
	Open(sha256 string) (io.ReadCloser, error)
}

// Leftover is one thing that an undo or a verification did not find as it
// should be, with how to finish by hand.
type Leftover struct {
	Subject string `json:"subject"`
	Found   string `json:"found"`
	Wanted  string `json:"wanted"`
	Fix     string `json:"fix"`
	// Missing says that what was not found is an exchanged original, of which a
	// second copy may be had.
	Missing bool `json:"-"`
}
