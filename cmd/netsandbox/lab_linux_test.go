package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/netsandbox/netsandbox/backends/nstest/manifest"
)

// lab is what scripts use for tools: nothing but our own program is needed on
// the machine, and in the views.
func lab(args []string) int {
	if err := labRun(args); err != nil {
		fmt.Fprintf(os.Stderr, "lab: %v\n", err)
		return 1
	}
	return 0
}

func labRun(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: lab serve ADDR | dial ADDR | ask FILE | manifest DIR | TOOL ARG...")
	}
	if tool, ok := tools[args[0]]; ok {
		return tool(args[1:])
	}
	switch args[0] {
	case "serve":
		return http.ListenAndServe(args[1], http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "ok")
		}))
	case "dial":
		c, err := net.DialTimeout("tcp", args[1], 2*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	case "manifest": // how a view looks from inside
		lines, err := manifest.Read(args[1], manifest.Options{})
		for _, l := range lines {
			fmt.Println(l)
		}
		return err
	case "ask":
		// A client that takes the server's address from its configuration, as an
		// agent takes its proxy.
		conf, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		r, err := (&http.Client{Timeout: 2 * time.Second}).Get("http://" + strings.TrimSpace(string(conf)))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err == nil {
			fmt.Printf("%s", body)
		}
		return err
	}
	return fmt.Errorf("unknown tool %q", args[0])
}
