// Package deploy holds what is put on machines and clusters beside the program itself, as the files that people read.
package deploy

import _ "embed" // the unit file

// UnitName is what the agent's service is called.
const UnitName = "aks-flex-node-agent.service"

// Unit is the content of the service's unit file.
//
//go:embed aks-flex-node-agent.service
var Unit []byte
