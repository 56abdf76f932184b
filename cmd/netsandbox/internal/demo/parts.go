package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/netsandbox/netsandbox/backends/demonet"
)

// Command is the hidden verb by which this program plays a part.
const Command = "__demo"

// Play plays one part: world PLACE, story PLACE, api ADDR, proxy ADDR, heartbeat CONFIG,
// reach ADDR.
func Play(ctx context.Context, args []string, out io.Writer) (status int, err error) {
	part, rest := args[0], args[1:]
	want := map[string]int{"world": 1, "story": 1, "api": 1, "proxy": 1, "heartbeat": 1, "reach": 1}
	if n, ok := want[part]; !ok || n != len(rest) {
		return 1, fmt.Errorf("no such part: %s", strings.Join(args, " "))
	}
	switch part {
	case "world":
		return world(rest[0])
	case "story":
		return 0, tell(ctx, rest[0], out)
	case "api":
		return 0, serve(rest[0], http.HandlerFunc(health))
	case "proxy":
		return 0, serve(rest[0], http.HandlerFunc(forward))
	case "heartbeat":
		return 0, heartbeat(ctx, rest[0], out)
	default:
		return 0, demonet.Reach(ctx, rest[0])
	}
}

func serve(addr string, h http.Handler) error {
	s := &http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 5 * time.Second}
	return s.ListenAndServe()
}

func health(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") }

// forward is a plain HTTP proxy.
func forward(w http.ResponseWriter, r *http.Request) {
	out, err := http.NewRequestWithContext(r.Context(), http.MethodGet, r.URL.String(), nil)
	if err != nil || !r.URL.IsAbs() {
		http.Error(w, "not a proxy request", http.StatusBadRequest)
		return
	}
	// No proxy of its own, whatever the environment says.
	t := &http.Transport{ResponseHeaderTimeout: 2 * time.Second}
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the client sees a short body
}

// heartbeat is the agent's own client: it reaches its API through the proxy that
// the configuration names, and through nothing else.
func heartbeat(ctx context.Context, config string, out io.Writer) error {
	b, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	proxy, ok := "", false
	for l := range strings.Lines(string(b)) {
		if v, is := strings.CutPrefix(strings.TrimSpace(l), "proxy = "); is {
			proxy, ok = v, true
		}
	}
	if !ok {
		return errors.New("the configuration names no proxy")
	}
	via := &url.URL{Scheme: "http", Host: proxy}
	t := &http.Transport{Proxy: http.ProxyURL(via), ResponseHeaderTimeout: 2 * time.Second}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: t, Timeout: 2 * time.Second}).Do(req)
	var errno syscall.Errno
	if errors.As(err, &errno) { // the rest of the chain repeats what is known
		return fmt.Errorf("no API through proxy %s: %w", proxy, errno)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", endpoint, resp.Status)
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
