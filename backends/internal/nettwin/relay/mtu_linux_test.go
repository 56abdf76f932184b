package relay

import (
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// TestMSSOfWhatAFrameSays reads SYNs whose header ends where there is none.
func TestMSSOfWhatAFrameSays(t *testing.T) {
	syn := func(words byte, options ...byte) header.TCP {
		b := append(make([]byte, header.TCPMinimumSize), options...)
		b[header.TCPDataOffset] = words << 4
		return header.TCP(b[:len(b):len(b)])
	}
	for name, tc := range map[string]struct {
		syn  header.TCP
		want int
	}{
		"one with the option":           {syn(6, header.TCPOptionMSS, 4, 0x05, 0xb4), 1460},
		"one without":                   {syn(5), header.TCPDefaultMSS},
		"a header shorter than any":     {syn(0), header.TCPDefaultMSS},
		"a header longer than the rest": {syn(15), header.TCPDefaultMSS},
		"an option cut off":             {syn(6, header.TCPOptionNOP, header.TCPOptionNOP, header.TCPOptionMSS, 4), header.TCPDefaultMSS},
		"an option of no length":        {syn(6, header.TCPOptionMSS, 0, 0, 0), header.TCPDefaultMSS},
	} {
		if got := mssOf(tc.syn); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}
