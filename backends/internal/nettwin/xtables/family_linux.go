package xtables

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// family is one of the three kinds of tables. They differ in sizes.
type family struct {
	name    string
	number  byte // NFPROTO_IPV4, …
	tool    string
	list    string // below /proc/thread-self/net
	domain  int    // of the socket
	level   int    // of its options
	base    int    // GET_INFO and SET_REPLACE; the next is GET_ENTRIES
	hooks   []string
	head    int // size of the part of an entry before its matches
	offsets int // of target_offset and next_offset in it
}

// Sizes and places are those of 64-bit kernels. The structures ipt_entry, ip6t_entry and arpt_entry end alike: target_offset,
// next_offset, comefrom, counters, matches and target.
var families = []*family{
	{
		name: "ip", number: unix.NFPROTO_IPV4, tool: "iptables", list: "ip_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, base: 64,
		hooks: inetHooks, head: 112, offsets: 88,
	},
	{
		name: "ip6", number: unix.NFPROTO_IPV6, tool: "ip6tables", list: "ip6_tables_names", domain: unix.AF_INET6, level: unix.SOL_IPV6, base: 64,
		hooks: inetHooks, head: 168, offsets: 140,
	},
	{
		name: "arp", number: unix.NFPROTO_ARP, tool: "arptables", list: "arp_tables_names", domain: unix.AF_INET, level: unix.SOL_IP, base: 96,
		hooks: []string{"INPUT", "OUTPUT", "FORWARD"}, head: 192, offsets: 164,
	},
}

var inetHooks = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

const (
	nameSize     = 32 // of a table
	counterSize  = 16
	targetHeader = 32 // size, name, revision of a match or target
	standardSize = 40 // of a target that is a verdict
	errorSize    = 64 // of a target that is the name of a chain
)

// tables lists the tables that exist in the calling thread's namespace.
func (f *family) tables() ([]string, error) {
	// /proc/net is that of the process's first thread.
	file, err := os.Open("/proc/thread-self/net/" + f.list)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel lacks the family, or nobody used it
	}
	if err != nil {
		return nil, fmt.Errorf("list tables of %s: %w", f.tool, err)
	}
	defer file.Close()
	var out []string
	for s := bufio.NewScanner(file); s.Scan(); {
		if name := strings.TrimSpace(s.Text()); name != "" && len(name) < nameSize {
			out = append(out, name)
		}
	}
	return out, nil
}

// bridged lists the modules of ebtables' own tables, which have no list.
func bridged() []string {
	text, err := os.ReadFile("/proc/modules")
	if err != nil {
		return nil // a kernel without modules
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if name, _, _ := strings.Cut(line, " "); name == "ebtable_filter" || name == "ebtable_nat" || name == "ebtable_broute" {
			out = append(out, strings.TrimPrefix(name, "ebtable_"))
		}
	}
	return out
}
