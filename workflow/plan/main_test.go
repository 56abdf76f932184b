package plan

import (
	"os"
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("PLAN_TEST_FREEZE"); dir != "" {
		freezeAndDie(dir)
	}
	nstest.Main(m)
}
