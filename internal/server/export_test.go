package server

// MayListen is mayListen.
var MayListen = mayListen
