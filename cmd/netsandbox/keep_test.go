package main

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/netsandbox/netsandbox/guards/circuit"
)

func TestKeeperProbesWhatAnsweredBefore(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	never := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	probe := dials([]circuit.Definition{
		{Label: "answers", Kind: circuit.TCP, Required: true, Address: addr},
		{Label: "again", Kind: circuit.Outbound, Required: true, Address: addr},
		{Label: "never", Kind: circuit.TCP, Required: true, Address: never},
		{Label: "ignored", Kind: circuit.TCP, Address: never},
		{Label: "client", Kind: circuit.Inbound, Required: true, Address: never},
		{Label: "canary", Kind: circuit.Canary, Required: true, Argv: []string{"true"}},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := probe(ctx); err != nil {
		t.Fatalf("what never answered counts: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if err := probe(ctx); err == nil {
		t.Fatal("a circuit that answered and does not any more is no break")
	}
}

func TestKeeperHasNothingToProbe(t *testing.T) {
	if dials([]circuit.Definition{{Kind: circuit.Canary, Required: true, Argv: []string{"true"}}}) != nil {
		t.Error("a canary is the applier's to run")
	}
}
