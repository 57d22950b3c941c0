package nbd

// Clients returns the number of connected clients.
func (s *Server) Clients() int {
	if s.prepare() != nil {
		return 0
	}
	return len(s.free)
}
