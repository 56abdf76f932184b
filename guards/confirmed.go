package guards

// confirmed wants a human's word over another connection, when one was asked for.
func confirmed(f Facts) *Refusal {
	if !f.Trial.ConfirmRequired || f.Trial.Confirmed {
		return nil
	}
	return &Refusal{Reason: "nobody confirmed the trial in time", Fix: "netsandbox confirm TRANSACTION NONCE"}
}
