// Checks of this machine and of the caller.
#ifndef HOTBED_CLI_DOCTOR_MACHINE_CHECKS_H_
#define HOTBED_CLI_DOCTOR_MACHINE_CHECKS_H_

#include <string>

#include "cli/doctor/check.h"
#include "security/identity.h"

namespace hotbed {

// Space on the disk of a directory, and how long it takes to bring a small file onto it.
Check CheckDisk(const std::string& path);
Check CheckHugePages();
// The certificate of the person who asks.
Check CheckCertificate(const ClientIdentity& identity);

}  // namespace hotbed

#endif  // HOTBED_CLI_DOCTOR_MACHINE_CHECKS_H_
