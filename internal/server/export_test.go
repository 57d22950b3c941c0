package server

// MayListen is mayListen.
func (s *Server) MayListen(addr string) error { return s.mayListen(addr) }
