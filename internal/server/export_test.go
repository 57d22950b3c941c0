package server

// MayListen exports mayListen for tests.
var MayListen = mayListen
