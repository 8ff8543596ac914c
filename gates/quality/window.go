package quality

// Window is the score of one window of a long chunk.
type Window struct {
	Logit  Logit
	Scored bool
}

// BestWindow returns which window decides for the chunk: the scored one with the highest finite logit, the first of equals. ok is
// false when none has a score, and the chunk then has none either. Windows that were not scored in time are passed over: the best
// of the others can only be too low.
//
// That a document is as relevant as its best passage is the MaxP of Dai and Callan, "Deeper Text Understanding for IR with
// Contextual Neural Language Modeling", SIGIR 2019, section 3.
func BestWindow(windows []Window) (best int, ok bool) {
	for i, w := range windows {
		if w.Scored && w.Logit.finite() && (!ok || w.Logit > windows[best].Logit) {
			best, ok = i, true
		}
	}
	return best, ok
}
