package escape

// archSystemCalls are those only this architecture has: arm64 has none.
var archSystemCalls []probe
