package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

// surviveDoc holds the table; -update writes it anew.
const surviveDoc = "../../docs/benchmarks.md"

// TestSurvive runs every row of the table of docs/benchmarks.md by our program,
// by cp and by rsync, and compares. Ours has to be what the document says on any
// machine; what the others do is theirs, and compared only in the versions that
// the document names.
func TestSurvive(t *testing.T) {
	nstest.New(
		t, nstest.Root, nstest.Overlay, nstest.TUN, nstest.NFT, nstest.Tool("setfacl"), nstest.Tool("setfattr"),
		nstest.Tool("setcap"), nstest.Tool("chattr"), nstest.Tool("rsync"), nstest.Tool("python3"),
	)
	s := newSurvivors(t)
	table := s.table()
	got := strings.Join(table, "\n")
	doc, err := os.ReadFile(surviveDoc)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(doc), surviveBegin)
	want, tail, ends := strings.Cut(rest, surviveEnd)
	if !begins || !ends {
		t.Fatalf("%s has no place for the table", surviveDoc)
	}
	if *update {
		if err := os.WriteFile(surviveDoc, []byte(head+surviveBegin+"\n"+got+"\n"+surviveEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	written := strings.Split(strings.TrimSpace(want), "\n")
	if written[0] == table[0] {
		if diff := gocmp.Diff(written, table); diff != "" {
			t.Errorf("the table of %s (-document +measured):\n%s", surviveDoc, diff)
		}
		return
	}
	t.Logf("other programs than the document's: %s", table[0])
	if diff := gocmp.Diff(oursOnly(written), oursOnly(table)); diff != "" {
		t.Errorf("our column in %s (-document +measured):\n%s", surviveDoc, diff)
	}
}

const (
	surviveBegin = "<!-- what survives: go test ./cmd/netsandbox -run TestSurvive -update -->"
	surviveEnd   = "<!-- end of what survives -->"
)

// oursOnly is the first two columns of a table.
func oursOnly(table []string) []string {
	var all []string
	for _, l := range table {
		if f := strings.Split(l, " | "); len(f) > 2 {
			all = append(all, f[0]+" | "+f[1])
		}
	}
	return all
}

// table runs everything; its first line says by which versions.
func (s *survivors) table() []string {
	lines := []string{
		fmt.Sprintf("With %s and %s:", versionOf(s.t, "cp"), versionOf(s.t, "rsync")), "",
		"| what | `netsandbox apply` | `cp -a` | `rsync -aHAX --delete` | try 0.2.0, measured | sandlock, read |",
		"| --- | --- | --- | --- | --- | --- |",
	}
	upper := []string{"", "| what, when the upper layer is copied | `cp -a` | `rsync -aHAX` |", "| --- | --- | --- |"}
	applied := 0
	for _, row := range survivals {
		ours := s.ours(row)
		if strings.HasPrefix(ours, "kept") || strings.HasPrefix(ours, "left") {
			applied++
		}
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", row.name, ours,
			s.copies(row, "merged", "cp", "cp", "-a"), s.copies(row, "merged", "rsync", "rsync", "-aHAX", "--delete"), cmp.Or(row.peers.try, "–"), cmp.Or(row.peers.sandlock, "–")))
		if row.meanwhile == "" && !row.killed {
			upper = append(upper, fmt.Sprintf("| %s | %s | %s |", row.name,
				s.copies(row, "upper", "cp", "cp", "-a"), s.copies(row, "upper", "rsync", "rsync", "-aHAX")))
		}
	}
	lines = append(
		lines,
		fmt.Sprintf("| overlayfs's own attributes on the host | %s | %s | %s | **leaks** user.overlay.origin and .opaque, 10 objects in one small run | no code for attributes |",
			marks(s.marked["ours"]), marks(s.marked["cp merged"]), marks(s.marked["rsync merged"])),
		fmt.Sprintf("| taking it back afterwards | to the byte, the very inodes: %d of %d rows that were applied | none | none | none | the layer of a failed merge is kept |", s.back, applied),
	)
	upper = append(upper, fmt.Sprintf("| overlayfs's own attributes on the host | %s | %s |", marks(s.marked["cp upper"]), marks(s.marked["rsync upper"])))
	return append(lines, upper...)
}

func marks(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprintf("**leaks**, %d objects", n)
}

// versionOf is the first line of what a program says of itself.
func versionOf(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.Join(strings.Fields(strings.ReplaceAll(line, "protocol version", "protocol")), " ")
}
