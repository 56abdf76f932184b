//go:build !linux

package client

import (
	"context"
	"errors"
	"io"
)

// Question is what may be asked from inside a view.
type Question struct {
	Verb, Path, Timeout string
	Secrets, JSON       bool
	Env                 []string
}

// Ask is not supported here.
func Ask(context.Context, Question, io.Writer, io.Writer) (int, error) {
	return 1, errors.ErrUnsupported
}
