package plan

// TestOnlyStep, when set, is called with the name of each durable step right
// before ("before …") and right after it ("after …"). Crash tests count the
// steps of a traced run and then die at each of them; nothing else may set it.
var TestOnlyStep func(point string)

// durable runs f as one traced step.
func durable(name string, f func() error) error {
	if TestOnlyStep == nil {
		return f()
	}
	TestOnlyStep("before " + name)
	if err := f(); err != nil {
		return err
	}
	TestOnlyStep("after " + name)
	return nil
}
