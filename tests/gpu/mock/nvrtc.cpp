// A libnvrtc without CUDA, for tests: it compiles a kernel for the emulator with the machine's C++ compiler.
//
// Built with EMULATOR, the folder of emulator.h. CXX names the compiler, `c++` where it is unset. To plant a bug:
// MOCK_NVRTC_FILE    a kernel or a header
// MOCK_NVRTC_FROM    a text that it has once
// MOCK_NVRTC_TO      what is compiled in the text's place
//
// MOCK_NVRTC_VERSION its version, 13.0 where unset
// MOCK_NVRTC_CALLS   a file that gets a line for each compilation: the source and what it is compiled for
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

extern "C" int nvrtcVersion(int* major, int* minor);

namespace {

struct Program {
  std::string source, name, target, log, cubin;
  std::vector<std::string> headers, header_names;
};

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Puts the bug that the environment asks for into a file. Returns whether the file is another or has the text once.
bool plant(const std::string& name, std::string& text) {
  const char *file = getenv("MOCK_NVRTC_FILE"), *from = getenv("MOCK_NVRTC_FROM"), *to = getenv("MOCK_NVRTC_TO");
  if (!file || !from || !to || name != file) return true;
  size_t at = text.find(from);
  if (at == std::string::npos || text.find(from, at + 1) != std::string::npos) return false;
  text.replace(at, strlen(from), to);
  return true;
}

// A word of a shell's command.
std::string shell_word(const std::string& text) {
  std::string made = "'";
  for (char c : text)
    if (c == '\'')
      made += "'\\''";
    else
      made += c;
  return made + "'";
}

// A text that the mock driver makes the code of.
std::string ptx(const Program& program) {
  int major = 0, minor = 0;
  nvrtcVersion(&major, &minor);
  std::string text = "mock PTX " + std::to_string(1000 * major + 10 * minor) + " ";
  for (unsigned char byte : program.cubin) text += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return text;
}

}  // namespace

extern "C" {
int nvrtcVersion(int* major, int* minor) {
  const char* version = getenv("MOCK_NVRTC_VERSION");
  if (!version) version = "13.0";
  return sscanf(version, "%d.%d", major, minor) == 2 ? 0 : 1;
}
const char* nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : code ? "NVRTC_ERROR" : "NVRTC_SUCCESS"; }
int nvrtcCreateProgram(Program** program, const char* source, const char* name, int count, const char* const* headers,
                       const char* const* names) {
  *program = new Program{source, name ? name : "kernel.cu", "", "", {}, {}};
  for (int i = 0; i < count; i++) {
    (*program)->headers.push_back(headers[i]);
    (*program)->header_names.push_back(names[i]);
  }
  return 0;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  return *program = nullptr, 0;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  bool is_planted = plant(program->name, program->source);
  for (size_t i = 0; i < program->headers.size(); i++) is_planted &= plant(program->header_names[i], program->headers[i]);
  if (!is_planted) {
    program->log = "the bug's text is not there once";
    return 6;
  }
  char folder[] = "/tmp/mock-nvrtc-XXXXXX";
  if (!mkdtemp(folder)) return 3;
  std::filesystem::path at = folder;
  std::ofstream(at / "kernel.cpp") << "#line 1 \"" << program->name << "\"\n" << program->source;
  for (size_t i = 0; i < program->headers.size(); i++) std::ofstream(at / program->header_names[i]) << program->headers[i];
  const char* compiler = getenv("CXX");
  std::string command = std::string(compiler && *compiler ? compiler : "c++") +
                        " -std=c++17 -O1 -march=native -fPIC -shared -fno-gnu-unique -ffp-contract=off -w -DEMULATED -I" + shell_word(at) + " -I" +
                        shell_word(EMULATOR);
  for (int i = 0; i < count; i++) {
    std::string option = options[i];
    if (option.rfind("-D", 0) == 0)
      command += " " + shell_word(option);
    else if (option.rfind("--gpu-architecture=", 0) == 0)
      program->target = option.substr(strlen("--gpu-architecture="));
    else if (option != "--fmad=false" && option != "--std=c++17" &&
             option != "--device-as-default-execution-space") {
      program->log = "unknown option " + option;
      return 5;
    }
  }
  if (const char* calls = getenv("MOCK_NVRTC_CALLS")) std::ofstream(calls, std::ios::app) << program->name + " " + program->target + "\n";
  command += " " + shell_word(at / "kernel.cpp") + " -o " + shell_word(at / "kernel.so") + " 2>" + shell_word(at / "log");
  int code = system(command.c_str());
  program->log = read(at / "log");
  program->cubin = code ? "" : read(at / "kernel.so");
  std::filesystem::remove_all(at);
  return code ? 6 : 0;
}
int nvrtcGetProgramLogSize(Program* program, size_t* bytes) { return *bytes = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* log) { return memcpy(log, program->log.c_str(), program->log.size() + 1), 0; }
int nvrtcGetCUBINSize(Program* program, size_t* bytes) { return *bytes = program->cubin.size(), 0; }
int nvrtcGetPTXSize(Program* program, size_t* bytes) { return *bytes = ptx(*program).size() + 1, 0; }
int nvrtcGetPTX(Program* program, char* text) { return memcpy(text, ptx(*program).c_str(), ptx(*program).size() + 1), 0; }
int nvrtcGetCUBIN(Program* program, char* cubin) { return memcpy(cubin, program->cubin.data(), program->cubin.size()), 0; }
}
