package upper

import (
	"testing"

	"github.com/netsandbox/netsandbox/backends/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }
