package txn

import (
	"crypto/rand"
	"strings"
	"time"
)

// NewID returns a transaction's name: apply-YYYYMMDD-HHMMSS-ID, in UTC, so that
// names sort by age, with 40 random bits.
func NewID(now time.Time) string {
	return "apply-" + now.UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:8])
}
