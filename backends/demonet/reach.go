package demonet

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Reach waits until something accepts connections at addr.
func Reach(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("reach %s: %w", addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
