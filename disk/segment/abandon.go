package segment

// Abandon closes the files and gives up the directory as the end of the process
// would: nothing more is written or synced, and no mark of a clean stop is left.
// Nobody may use the Store any more, nor hold Spans.
func (s *Store) Abandon() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.files.closeAll()
	s.journal.close()
	return s.unlock()
}
