package linuxns

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) {
	Main() // this binary is also its own holder and init
	nstest.Main(m)
}
