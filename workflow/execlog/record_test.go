package execlog

import (
	"fmt"
	"hash/crc32"
	"testing"
)

// TestSumIsCRC32C: logs of earlier versions, and other programs, use the tables.
func TestSumIsCRC32C(t *testing.T) {
	for _, s := range []string{"", "x", "123456789", "{\"id\":\"0\",\"what\":\"start\"}"} {
		want := fmt.Sprintf("%08x", crc32.Checksum([]byte(s), crc32.MakeTable(crc32.Castagnoli)))
		if got := sum([]byte(s)); got != want {
			t.Errorf("sum(%q) = %s, want %s", s, got, want)
		}
	}
}
