#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cli/base/command.h"
#include "common/files/file_system.h"
#include "common/sha256.h"
#include "common/status_macros.h"
#include "nlohmann/json.hpp"
#include "security/certificate.h"
#include "terminal/table_printer.h"

namespace hotbed {
namespace {

struct CertFlags {
  std::string dir;
  std::string name;
  std::string role;
  std::vector<std::string> hosts;
  int64_t days = 365;
  bool replace = false;
  std::string file;
};

int64_t NowS() { return absl::ToUnixSeconds(absl::Now()); }

std::string Day(int64_t seconds) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixSeconds(seconds),
                          absl::UTCTimeZone());
}

std::string RolesText(const Certificate& certificate) {
  std::vector<std::string> roles;
  for (const AccessRole role : certificate.roles) roles.push_back(AccessRoleName(role));
  return absl::StrJoin(roles, ", ");
}

absl::Status ShowCertificates(const CommandContext& context, const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::vector<Certificate> certificates, ReadCertificates(path));
  TablePrinter table({"name", "roles", "hosts", "signed by", "valid until", "days left"});
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Certificate& one : certificates) {
    const int64_t days = (one.not_after_s - NowS()) / kDayS;
    table.AddRow({one.name, one.authority ? "authority" : RolesText(one),
                  absl::StrJoin(one.hosts, ", "), one.issuer, Day(one.not_after_s),
                  one.not_after_s < NowS() ? "expired" : absl::StrCat(days)});
    nlohmann::ordered_json roles = nlohmann::ordered_json::array();
    for (const AccessRole role : one.roles) roles.push_back(AccessRoleName(role));
    json.push_back({{"name", one.name},
                    {"authority", one.authority},
                    {"roles", roles},
                    {"hosts", one.hosts},
                    {"issuer", one.issuer},
                    {"not_before_s", one.not_before_s},
                    {"not_after_s", one.not_after_s}});
  }
  return context.Answer(json, table.ToText());
}

absl::Status Written(const CommandContext& context, const std::string& base,
                     const std::string& note) {
  return context.Answer({{"certificate", base + ".crt"}, {"key", base + ".key"}},
                        absl::StrCat("wrote ", base, ".crt and ", base, ".key", note, "\n"));
}

absl::Status HashToken(const CommandContext& context, const std::string& path) {
  HOTBED_ASSIGN_OR_RETURN(const std::string text, FileSystem::Real()->ReadAll(path));
  const absl::string_view token = absl::StripAsciiWhitespace(text);
  constexpr size_t kTokenBytesMin = 16;
  if (token.size() < kTokenBytesMin) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a token of ", token.size(), " characters can be guessed; at least ",
                     kTokenBytesMin, ", for example of 'openssl rand -hex 32'"));
  }
  const std::string hash = Sha256Hex(token);
  return context.Answer({{"sha256", hash}}, hash + "\n");
}

void AddDir(CLI::App* command, CertFlags* flags) {
  command->add_option("--dir", flags->dir, "Directory of the authority (ca.crt, ca.key)")
      ->required();
}

void AddDays(CLI::App* command, CertFlags* flags) {
  command->add_option("--days", flags->days, "How long the certificate is valid")
      ->check(CLI::Range(1, 36'500))
      ->capture_default_str();
}

void AddCreateAuthority(CLI::App* cert, CommandContext* context) {
  const auto flags = std::make_shared<CertFlags>();
  flags->name = "hotbed";
  flags->days = 3650;
  CLI::App* const command =
      cert->add_subcommand("create-ca", "Make an authority that signs certificates");
  AddDir(command, flags.get());
  AddDays(command, flags.get());
  command->add_option("--name", flags->name, "Its name")->capture_default_str();
  context->Runs(command, [context, flags] {
    HOTBED_RETURN_IF_ERROR(CreateAuthority(flags->dir, flags->name, flags->days, NowS()));
    return Written(*context, flags->dir + "/ca",
                   ". Give ca.crt to all parts (--tls-ca); keep ca.key where no server runs");
  });
}

void AddCreate(CLI::App* cert, CommandContext* context) {
  const auto flags = std::make_shared<CertFlags>();
  CLI::App* const command = cert->add_subcommand(
      "create", "Make a certificate with a role, signed by the authority of a directory");
  AddDir(command, flags.get());
  AddDays(command, flags.get());
  command->add_option("--name", flags->name, "Who holds it; also the name of its files")
      ->required();
  command->add_option("--role", flags->role, "What the holder may do")
      ->check(CLI::IsMember({"reader", "trainer", "operator", "server"}))
      ->required();
  command->add_option("--host", flags->hosts,
                      "DNS name or address of the holder, for other programs that compare it; "
                      "may be given several times");
  command->add_flag("--replace", flags->replace,
                    "Replace the files of this name; processes take the new ones by themselves");
  context->Runs(command, [context, flags] {
    HOTBED_ASSIGN_OR_RETURN(const AccessRole role, AccessRoleOf(flags->role));
    HOTBED_RETURN_IF_ERROR(CreateCertificate(
        flags->dir, {.name = flags->name, .role = role, .hosts = flags->hosts, .days = flags->days},
        flags->replace, NowS()));
    return Written(*context, absl::StrCat(flags->dir, "/", flags->name), "");
  });
}

}  // namespace

void AddCertCommands(CLI::App* cert, CommandContext* context) {
  AddCreateAuthority(cert, context);
  AddCreate(cert, context);
  const auto show = std::make_shared<CertFlags>();
  CLI::App* const command =
      cert->add_subcommand("show", "Say whose the certificates of a file are, and until when");
  command->add_option("file", show->file, "A file in PEM")->required();
  context->Runs(command, [context, show] { return ShowCertificates(*context, show->file); });
  const auto token = std::make_shared<CertFlags>();
  CLI::App* const hash = cert->add_subcommand(
      "hash-token", "Print a token's hash, as the file of --access-rules names it");
  hash->add_option("file", token->file, "A file that holds the token")->required();
  context->Runs(hash, [context, token] { return HashToken(*context, token->file); });
}

}  // namespace hotbed
